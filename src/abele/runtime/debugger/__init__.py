"""The superstep debugger: programs run step by step, forwards and backwards, with breakpoints and open memory."""

from abele.runtime.debugger.breakpoints import AtStep, AtTile, AtVertex, Breakpoint, OnAnyNan, OnChange, OnNan
from abele.runtime.debugger.lending import Debuggable

__all__ = ["AtStep", "AtTile", "AtVertex", "Breakpoint", "Debuggable", "OnAnyNan", "OnChange", "OnNan"]
