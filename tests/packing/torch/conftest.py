"""Programs that choose no machine run on the small one."""

from __future__ import annotations

from support.machines import small_machine, whole_machine

__all__ = ["small_machine", "whole_machine"]
