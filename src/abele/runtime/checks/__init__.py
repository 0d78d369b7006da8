"""Checks that no IPU gives: bounds, uninitialised reads, NaN, orders of vertices, overruns."""
