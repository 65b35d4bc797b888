"""Drawings in pages, made here and turned into SVG by the templates."""
