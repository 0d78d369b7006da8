"""One element of each row, by index."""

from __future__ import annotations

from collections.abc import Callable

from abele.numerics import ElementType, f16, f32, u32
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import loop, state, vector, wide

_INTERVAL = "of rows of paramsWidth elements, the one whose column is that of indices"


def families() -> list[Family]:
    """Every vertex of this module."""
    floats = type_of(f32, f16)
    return [
        Family("SelectFromInterval", (floats,), _interval(False), "guessed", _INTERVAL),
        Family("UpdateIntervalDEC", (floats,), _interval(True), "guessed", f"{_INTERVAL}, less one in place"),
    ]


def _interval(updates: bool) -> Callable[..., Instance]:
    """Rows that may begin and end within the vertex's stretch: the first has the columns from ``firstStartCol`` on, the
    last those up to ``lastEndCol``."""

    def make(dtype: ElementType) -> Instance:
        fields = [vector("indices", u32, "Input", "ONE_PTR", 4)]
        fields.append(vector("params", dtype, "InOut" if updates else "Input", "ONE_PTR", 4))
        fields += [] if updates else [vector("output", dtype, "Output", "ONE_PTR", 4)]
        fields += [state(n, u32) for n in ("rowCount", "paramsWidth", "firstStartCol", "lastEndCol")]
        zero = f"{dtype.name}(0.0)"
        less = wide(f"{wide('self.params[place]', dtype, f32)} - 1.0", f32, dtype)
        hit = f"self.params[place] = {less}" if updates else "self.output[r] = self.params[place]"
        clear = [] if updates else [f"self.output[r] = {zero}"]
        body = [
            "begin = i64(0)",
            *loop(
                "i64(self.rowCount)",
                [
                    "low = i64(self.firstStartCol) if r == 0 else i64(0)",
                    "high = i64(self.lastEndCol) if r == i64(self.rowCount) - 1 else i64(self.paramsWidth)",
                    "column = i64(self.indices[r])",
                    *clear,
                    "if column >= low and column < high:",
                    "    place = begin + column - low",
                    f"    {hit}",
                    "begin = begin + high - low",
                ],
                "r",
            ),
        ]
        return Instance("Vertex", tuple(fields), tuple(body))

    return make
