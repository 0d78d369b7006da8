"""Small machines and codelets for the compiler's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.machine import System, systems
from abele.numerics import ElementType, f32


@dataclass(frozen=True)
class Field:
    name: str
    direction: str
    type: ElementType = f32
    rank: int = 1


@dataclass(frozen=True)
class Definition:
    name: str
    fields: tuple[Field, ...]
    kind: str = "vertex"
    file: str = "codelets.py"
    line: int = 1
    formula: Callable[[Any, Any], Any] | None = field(default=lambda v, ipu: np.full(v.num, 10))


@dataclass(frozen=True)
class Compiled:
    code_bytes: int = 64
    data_dependent: bool = False
    slots: int = 0


def codelet(name: str, kind: str = "vertex", **fields: Any) -> Definition:
    """A codelet definition from ``name="direction"`` or ``name=(direction, type, rank)``."""
    given = [(n, (v,) if isinstance(v, str) else v) for n, v in fields.items()]
    return Definition(name, tuple(Field(n, *v) for n, v in given), kind)


def small_system(num_tiles: int = 8, num_ipus: int = 1) -> System:
    base = systems.get("bow-2000")
    return base.evolve(ipu=base.ipu.evolve(num_tiles=num_tiles), num_ipus=num_ipus, name=f"small-{num_tiles}")
