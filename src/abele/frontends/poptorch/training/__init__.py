"""Optimisers, read as rules of the session."""
