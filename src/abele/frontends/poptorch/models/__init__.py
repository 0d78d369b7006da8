"""Wrapped models: what users call, what is compiled for them, and what is written of them to files."""
