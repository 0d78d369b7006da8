"""When each IPU does what."""

from __future__ import annotations
