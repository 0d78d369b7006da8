"""The tree of control programs."""

from __future__ import annotations
