"""Error of a pass that made a meaningless form."""

from __future__ import annotations

from abele.errors import AbeleError


class IllegalFormError(AbeleError):
    """A form between two passes of the planner breaks a rule that every form keeps: a defect of a pass."""
