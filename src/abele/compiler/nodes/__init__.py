"""Meanings of program nodes to the compiler: kind, name, cost, why they move data, why replicas may differ."""

from abele.compiler.nodes import control, data

__all__ = ["control", "data"]
