"""Reductions and what is made of them: plans, steps, vertices, histograms, checks for NaN, running sums."""
