"""Convolutions: parameters, transforms, index relations and operation counts."""
