"""Wrapped models: the classes that users call, the programs compiled for them, and their files."""
