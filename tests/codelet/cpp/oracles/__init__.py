"""What the vertices of the corpus compute, by NumPy."""
