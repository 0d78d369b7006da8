"""Abele: the IPU in software."""

__version__ = "0.1.0"
