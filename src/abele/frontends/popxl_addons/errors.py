"""Errors of programs that use ``popxl_addons``."""

from __future__ import annotations

from abele.errors import AbeleError


class TreeNameError(AbeleError, AttributeError, KeyError, ValueError):
    """A name that a tree does not have, or has already."""

    __str__ = AbeleError.__str__


class ModuleError(AbeleError, RuntimeError):
    """A module that is used otherwise than modules are: inputs given twice, variables that no graph would get."""


class GradientInliningError(AbeleError, RuntimeError):
    """A gradient through a module with a gradient of its own, which is not called as a graph."""


class CheckpointError(AbeleError, ValueError):
    """A checkpoint that is not one, or of other variables than the session has."""


__all__ = ["CheckpointError", "GradientInliningError", "ModuleError", "TreeNameError"]
