"""Inputs of a call: drawn, planted with secret places, and known for what they say."""
