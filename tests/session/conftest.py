"""Makes ``toy_front_end`` importable by the room's tests."""

from __future__ import annotations

import sys
from pathlib import Path

from support.machines import small_machine, whole_machine

__all__ = ["small_machine", "whole_machine"]

sys.path.insert(0, str(Path(__file__).resolve().parent))
