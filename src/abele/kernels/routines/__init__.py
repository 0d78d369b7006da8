"""Routines that multiply matrices, wherever their elements lie; which there are on this host, and what they cost."""
