"""Inputs of a call: drawing, planting at secret places, and checks of how much they reveal."""
