"""Dot products: the heart of the array."""
