"""Conversion of rows and domain objects to the records of the API, each as its viewer may see it."""
