"""Devices: which there are, whether they are fit, and how much memory their machine has."""
