"""Operations and what flows between them."""

from __future__ import annotations
