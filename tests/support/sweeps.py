"""Sweeps over several parameters: a part of the product is plain tests, the rest is marked slow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def sweep(*axes: Iterable[Any], every: int = 2) -> list[Any]:
    """All combinations of values, those left out of plain tests marked slow.

    Plain tests take the combinations whose places on the axes sum to a multiple of ``every``: each value is among
    them, and of axes beside one that is at least as long as ``every``, each pair of values. Of 3 x 2 x 2 values six
    remain.
    """
    made = []
    for chosen in itertools.product(*(enumerate(axis) for axis in axes)):
        is_plain = sum(place for place, _ in chosen) % every == 0
        made.append(pytest.param(*(value for _, value in chosen), marks=[] if is_plain else [pytest.mark.slow]))
    return made
