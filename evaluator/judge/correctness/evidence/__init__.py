"""What is wrong about a tensor: the places, sizes and patterns of its errors."""
