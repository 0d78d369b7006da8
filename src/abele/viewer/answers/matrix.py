"""Any metric by tile and superstep."""

from __future__ import annotations
