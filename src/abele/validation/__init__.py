"""Holding the model against published results: what it predicts beside what others measured or modelled."""
