"""Words about a verdict, for the language model or the person that wrote the candidate."""
