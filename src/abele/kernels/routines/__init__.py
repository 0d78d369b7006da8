"""Routines that multiply matrices, wherever their elements lie: those on this host, and their costs."""
