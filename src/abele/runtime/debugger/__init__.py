"""The superstep debugger: programs run step by step, forwards and backwards, with breakpoints and open memory."""

from abele.runtime.debugger.breakpoints import AtStep, AtTile, AtVertex, Breakpoint, OnAnyNan, OnChange, OnNan

__all__ = ["AtStep", "AtTile", "AtVertex", "Breakpoint", "OnAnyNan", "OnChange", "OnNan"]
