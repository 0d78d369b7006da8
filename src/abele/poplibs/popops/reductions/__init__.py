"""Reductions and functions built on them: plans, steps, vertices, histograms, checks for NaN, running sums."""
