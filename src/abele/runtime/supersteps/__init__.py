"""Supersteps as leaves: vertices with their tables, native or interpreted, and how their floats are rounded."""
