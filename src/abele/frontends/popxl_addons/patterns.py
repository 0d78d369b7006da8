"""Patterns of PopART: rewrites of its own, which have no meaning here."""

from __future__ import annotations

from collections.abc import Iterable

from abele.frontends.popxl import Ir
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError

LEVELS = ("all", "default", "minimal", "none")


def apply_pre_alias_patterns(ir: Ir, level: str = "default", patterns: Iterable[str] = ()) -> None:
    """Nothing: passes of the network choose rewrites, and no pattern changes results.

    Raises:
        GraphArgumentError: ``level`` is none of PopART's.
    """
    if not isinstance(ir, Ir):
        raise GraphTypeError(f"patterns are applied to an Ir, not {ir!r}")
    if str(level).lower() not in LEVELS:
        raise GraphArgumentError(f"a level of patterns is one of {', '.join(LEVELS)}, not {level!r}")


def disable_fc_pass(ir: Ir) -> None:
    """Nothing: products are planned one by one, with no pass for fully connected layers."""
    if not isinstance(ir, Ir):
        raise GraphTypeError(f"disable_fc_pass takes an Ir, not {ir!r}")


__all__ = ["apply_pre_alias_patterns", "disable_fc_pass"]
