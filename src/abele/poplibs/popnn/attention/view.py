"""Reading of a cache by queries: size of pages, scale, window and cap of scores."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError


@dataclass(frozen=True)
class CacheView:
    """Reading of a cache by queries.

    Attributes:
        page: Rows of a page.
        scale: Factor of scores.
        window: Positions that a query sees, its own the last; 0 for all.
        softcap: Bound c of scores s, which become c · tanh(s / c); 0 for none.

    Raises:
        InvalidOptionError: A page without rows, or a window or cap below zero.
    """

    page: int
    scale: float
    window: int = 0
    softcap: float = 0.0

    def __post_init__(self) -> None:
        if self.page < 1:
            raise InvalidOptionError(f"a page of {self.page} rows holds nothing")
        if self.window < 0 or not self.softcap >= 0:
            raise InvalidOptionError(f"window {self.window} and softcap {self.softcap} are not below 0; 0 is none")
