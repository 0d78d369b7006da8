"""Packages that programs import beside TensorFlow."""
