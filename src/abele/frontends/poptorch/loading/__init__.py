"""Loaders of batches, and the process that loads ahead."""
