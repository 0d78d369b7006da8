"""Operations, beyond what their table has."""

from __future__ import annotations
