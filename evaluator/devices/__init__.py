"""Devices: discovery, health, and the memory of their machine."""
