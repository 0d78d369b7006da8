"""Host's side of products with quantised weights: vertices of a host, one for each share of the outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f8_143, f32
from abele.poplibs.poplin.quantised.host_codelets import QuantisedLoop, product_codelet
from abele.weights.quantised import KINDS

MOST_ROWS = 8
"""Rows of x for which codes are read once for all."""
WIDTH = 16
"""Bytes of codes that are taken together: two vectors of 256 bits, or one of 512, of f32."""
SHARES, LEAST_ROWS = 16, 8
"""Shares of the outputs, and the least rows of codes of a share, which pay for its copy of x."""
FEW_BLOCKS = 8
"""Widths of a group that the code has one after the other."""


def host_product(
    graph: Graph, x: Tensor, weights: tuple[Tensor, Tensor, Tensor | None], out: Tensor, kind: str, name: str
) -> Sequence | None:
    """Steps of a host that put ``x · Wᵀ`` into ``out``, for 1 to 8 rows of x; None where there are none.

    Args:
        graph: Graph of the steps and of their scratch memory.
        x: [rows, in].
        weights: Codes [out, in], or [out, in/2] for int4; scales [out, groups]; offsets as scales, or None.
        out: [rows, out].
        kind: Kind of the codes.
        name: Name of the steps.
    """
    codes, scales, offsets = weights
    batch, outputs = out.shape
    stored, groups = codes.shape[1], scales.shape[1]
    if batch > MOST_ROWS or not all(_is_near(t) for t in (x, codes, scales, *(() if offsets is None else (offsets,)))):
        return None
    per_group = stored // groups
    how = _how(kind, batch, per_group, offsets=offsets is not None)
    step = graph.compute_set(f"{name}/host_product")
    share = max(LEAST_ROWS, -(-outputs // (SHARES * how.rows)) * how.rows)
    whole = outputs // share
    if kind == "f143":
        codes = codes.reinterpret(f8_143)
    code = product_codelet(how, codes.dtype, scales.dtype, x.dtype, out.dtype)
    for first, rows, count in ((0, share, whole), (whole * share, outputs - whole * share, 1)):
        if not rows * count:
            continue

        def shares(tensor: Tensor, first: int = first, rows: int = rows, count: int = count) -> Tensor:
            return tensor[first : first + rows * count].reshape((count, rows * tensor.shape[1]))

        fields: dict[str, Any] = {"offsets": shares(offsets)} if offsets is not None else {}
        if how.per_byte == 2:
            fields["x_high"] = _scratch(graph, (count, batch * stored), name)
        if how.sums:
            fields["x_sums"] = _scratch(graph, (count, batch * groups), name)
        if how.blocks:
            fields["row_scales"] = _scratch(graph, (count, how.rows * groups), name)
        else:
            fields |= {"blocks": per_group // how.width, "rest": per_group % how.width}
        made = out[:, first : first + rows * count].reshape((batch, count, rows)).transpose((1, 0, 2))
        step.vertices(
            code,
            tile=np.zeros(count, np.int32),
            cycles=np.zeros(count, np.int64),
            codes=shares(codes),
            scales=shares(scales),
            x=x.flatten().broadcast_to((count, x.size)),
            x_low=_scratch(graph, (count, batch * stored), name),
            s=_scratch(graph, (count, how.room), name),
            t=_scratch(graph, (count, how.room), name),
            out=made,
            groups=groups,
            **fields,
        )
    return Sequence(Execute(step))


def _how(kind: str, batch: int, per_group: int, *, offsets: bool) -> QuantisedLoop:
    """The way to read groups of ``per_group`` bytes."""
    held = KINDS[kind]
    width = WIDTH if per_group >= WIDTH else math.gcd(per_group, WIDTH)
    blocks = per_group // width if per_group % width == 0 and per_group <= FEW_BLOCKS * width else 0
    # Groups of several widths fill the pipelines; memory brings one row of codes sooner than parts of four.
    rows = 1 if blocks > 1 else 4 if batch == 1 else 2 if batch <= 4 else 1
    centre = 0 if offsets else held.centre
    return QuantisedLoop(
        kind=kind,
        batch=batch,
        rows=rows,
        width=width,
        blocks=blocks,
        per_byte=held.per_byte,
        centre=centre,
        offsets=offsets,
        sums=offsets or centre != 0,
    )


def _is_near(tensor: Tensor) -> bool:
    """True if the host has a tensor in one stretch, in order."""
    return tensor.flatten().content.single_run is not None


def _scratch(graph: Graph, shape: tuple[int, ...], name: str) -> Tensor:
    """A new variable of f32, row-major; the machine knows nothing of it."""
    return graph.variable(f32, shape, name=f"{name}/host", map="linear")
