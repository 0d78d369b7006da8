"""Convolutions: parameters, transforms, and what follows from them (index relations, operation counts)."""
