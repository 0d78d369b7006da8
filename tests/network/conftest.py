"""Makes ``meaning`` importable by the room's tests, and has networks checked between passes."""

from __future__ import annotations

import sys
from pathlib import Path

from abele.network import check_passes
from support.machines import small_machine, whole_machine

__all__ = ["small_machine", "whole_machine"]

sys.path.insert(0, str(Path(__file__).resolve().parent))
check_passes()
