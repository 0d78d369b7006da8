"""Arguments and results: their trees, their types, what may differ between calls."""
