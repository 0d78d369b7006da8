"""Holding the model against published results: its predictions beside figures of others."""
