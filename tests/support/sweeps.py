"""Sweeps over parameters: plain tests take a part of a product, and slow runs a sample that their commit chooses.

``make sweeps`` takes them whole. A failed run names its sample: ``SWEEP='8feff850fe6c' make slow`` takes it again.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

ALL = "all"


@functools.cache
def seed() -> str:
    """What the environment says as ``SWEEP``, else the commit, else a word."""
    return os.environ.get("SWEEP") or _commit() or "no commit"


def _commit() -> str:
    try:
        command, folder = ["git", "rev-parse", "--short=12", "HEAD"], Path(__file__).parent
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def sampled(items: Sequence[T], count: int, *, by: str = "") -> list[T]:
    """Some of the items, in their order; all of them for the seed ``all``.

    Args:
        items: The whole sweep.
        count: Items of a sample.
        by: The seed, if not that of this run.
    """
    seeded = by or seed()
    if seeded == ALL or count >= len(items):
        return list(items)
    places = random.Random(seeded).sample(range(len(items)), count)
    return [items[place] for place in sorted(places)]


def rounds(all_of_them: int, count: int) -> int:
    """Rounds of a loop: a few, or all of them for the seed ``all``."""
    return all_of_them if seed() == ALL else count


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
