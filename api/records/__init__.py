"""Rows and domain objects as the records that go over the wire, each as its viewer may see it."""
