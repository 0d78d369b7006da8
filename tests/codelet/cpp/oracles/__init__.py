"""Meanings of the corpus's vertices in NumPy."""
