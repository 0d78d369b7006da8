"""Automatic differentiation of networks: a backward pass in reverse, and counts of its gradients by magnitude."""

from abele.network.autodiff.differentiate import differentiate

__all__ = ["differentiate"]
