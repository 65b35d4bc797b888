"""Ways to build an extension, and the files that they need beforehand."""
