"""What each tile holds."""

from __future__ import annotations
