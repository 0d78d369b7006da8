"""Boxes picked of those that overlap.

The number of picked boxes depends on values, and shapes are known before a run. So a result has as many rows as boxes
can be picked: of 2 samples, 3 classes and 4 boxes of each at most, 24. The picked ones come first, in ONNX's order (by
sample, class and falling score); all numbers of rows behind them are -1.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from abele.expr import Const, apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Known, NodeCall, op
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, f32, i32

x, y, z = arg(0), arg(1), arg(2)


@op("NonMaxSuppression")
def non_max_suppression(
    call: NodeCall,
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Known | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    """Sample, class and number of the boxes that no better box of their class covers; rows of -1 behind them."""
    net, (batch, classes, count) = call.net, scores.shape
    most = 0 if max_output_boxes_per_class is None else int(np.asarray(max_output_boxes_per_class).reshape(-1)[0])
    trips = max(0, min(most, count))
    rows = batch * classes * trips
    call.made_here(rows, 3)
    if not rows:
        return net.constant(np.zeros((0, 3), np.int32), i32)
    warnings.warn(
        f"{call.name} gives [{rows:,}, 3]: the boxes that are picked, and rows of -1 behind them (docs/onnx.md)",
        stacklevel=2,
    )
    sides = _sides(call, boxes, center=bool(center_point_box))
    limit = build.full(net, 0, (), f32) if iou_threshold is None else build.reshape(net, iou_threshold, ())
    left = scores
    if score_threshold is not None:
        left = call.map(select(x > y, x, -math.inf), scores, build.reshape(net, score_threshold, ()))
    places = build.positions(net, scores.shape, 2)

    def pick(region: BlockBuilder, number: Value, *carried: Value) -> list[Value]:
        remaining, table = carried
        at, limits = region.read(places), region.read(limit)
        best = build.reduce(region, remaining, [2], "max", keep=True)
        # Of equal scores the first; where none is left, every score is as low as the best.
        first = build.map_(region, select(x.eq(y), z, Const(count, i32)), [remaining, best, at], i32)
        chosen = build.reduce(region, first, [2], "min", keep=True)
        is_it = build.map_(region, x.eq(y), [at, chosen], bool_)
        own = [region.read(side) for side in sides]
        its = [
            build.reduce(region, build.map_(region, select(x, y, 0.0), [is_it, side], f32), [2], "add", keep=True)
            for side in own
        ]
        covered = _covered(region, own, its, limits)
        gone = build.map_(region, select(apply("or", y, z), -math.inf, x), [remaining, covered, is_it], f32)
        row = build.map_(region, select(x > -math.inf, y, Const(-1, i32)), [best, chosen], i32)
        return [gone, build.write_row(region, table, build.reshape(region, row, (batch, classes)), number)]

    start = build.full(net, -1, (trips, batch, classes), i32)
    picked = build.loop(net, trips, [build.cast(net, left, f32), start], pick)[1]
    return _first_rows(call, build.permute(net, picked, (1, 2, 0)))


def _sides(call: NodeCall, boxes: Value, *, center: bool) -> list[Value]:
    """Lower and upper ends of boxes in both dimensions, each [batch, 1, boxes]."""
    net, (batch, count, _) = call.net, boxes.shape
    wide = build.cast(net, boxes, f32)
    a, b, c, d = (build.reshape(net, build.slice_(net, wide, 2, n, n + 1), (batch, 1, count)) for n in range(4))
    if center:
        return [
            call.map(x - y / 2, a, c),
            call.map(x - y / 2, b, d),
            call.map(x + y / 2, a, c),
            call.map(x + y / 2, b, d),
        ]
    return [call.map(apply(side, x, y), *ends) for side in ("min", "max") for ends in ((a, c), (b, d))]


def _covered(net: BlockBuilder, boxes: list[Value], its: list[Value], limit: Value) -> Value:
    """Boxes that a chosen one covers by more than a part of what both cover."""

    def shared(low: int, high: int) -> Value:
        ends = [boxes[low], its[low], boxes[high], its[high]]
        inside = apply("min", arg(2), arg(3)) - apply("max", x, y)
        return build.map_(net, apply("max", inside, 0.0), ends, f32)

    both = build.map_(net, x * y, [shared(0, 2), shared(1, 3)], f32)
    areas = [build.map_(net, (z - x) * (arg(3) - y), given, f32) for given in (boxes, its)]
    union = y + z - x
    return build.map_(net, apply("and", union > 0.0, x / union > arg(3)), [both, *areas, limit], bool_)


def _first_rows(call: NodeCall, picked: Value) -> Value:
    """Rows of sample, class and number, those that picked a box first."""
    net, (batch, classes, trips) = call.net, picked.shape
    rows = picked.size
    numbers = np.indices((batch, classes, trips)).reshape(3, rows)[:2].T.astype(np.int32)
    flat = build.reshape(net, picked, (rows, 1))
    table = build.concat(net, [net.constant(numbers, i32), flat], 1)
    found = build.map_(net, select(x >= 0, Const(1, i32), Const(0, i32)), [build.reshape(net, picked, (rows,))], i32)
    before = build.scan(net, found, 0)
    # Rows without a box go to one more row, which is cut off.
    places = build.map_(net, select(y > 0, x - Const(1, i32), Const(rows, i32)), [before, found], i32)
    made = build.join_rows(
        net,
        build.full(net, -1, (1, rows + 1, 3), i32),
        build.reshape(net, table, (1, rows, 3)),
        build.reshape(net, places, (1, rows)),
        "set",
    )
    return build.slice_(net, build.reshape(net, made, (rows + 1, 3)), 0, 0, rows)
