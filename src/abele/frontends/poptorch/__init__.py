"""PopTorch, name for name."""
