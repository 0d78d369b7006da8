"""Fixtures that the tests of the PopTorch front end share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from abele.network import check_passes
from support.machines import small_machine, whole_machine

__all__ = ["small_machine", "whole_machine"]

check_passes()
