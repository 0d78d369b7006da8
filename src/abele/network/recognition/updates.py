"""Updates of one element of each row of zeros, as gradients of look-ups are: one map, as rows are written anyway."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from abele.expr import derivative, select
from abele.network.ir import NetworkOp, Value
from abele.network.ops import build
from abele.network.recognition.region import Appender, Emit, Replacements, Uses
from abele.numerics import i32

_X, _Y, _Z = (derivative.arg(n) for n in range(3))


def find_single_updates(uses: Uses) -> Iterator[Replacements]:
    """Updates of a block that write one element of each of several rows of zeros."""
    for op in uses.ops:
        if op.kind == "update_rows" and op.attrs["operation"] in ("add", "set"):
            table, rows, _ = op.inputs
            if rows.shape == (table.shape[0], 1, 1) and table.shape[0] > 1 and uses.number(table) == 0:
                yield Replacements({op.output: _as_map(op)})


def _as_map(op: NetworkOp) -> Emit:
    def make(to: Appender) -> Value:
        net, (_, rows, index) = to.net, (to.values[v] for v in op.inputs)
        entries = op.output.shape[1]
        numbers = net.constant(np.arange(entries, dtype=np.int32).reshape(1, entries, 1), i32)
        beside = build.reshape(net, index, rows.shape)
        return build.map_(net, select(_X.eq(_Y), _Z, 0), [numbers, beside, rows], op.output.dtype)

    return make
