"""Who sends to whom."""

from __future__ import annotations
