"""Operations below the roofs of the machine: peak compute, and peak exchange at their flops for each exchanged byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from abele.arrays import Array, Float64
from abele.report.insights.element_types import ElementTypes
from abele.report.insights.model import Roof, Roofline
from abele.report.insights.program_steps import ProgramSteps
from abele.report.relations import summed_by

_MOST = 100


def roofline_of(steps: ProgramSteps, types: ElementTypes) -> Roofline:
    """The roofs, and the operations that compute something, most cycles first.

    Flops are known for a run of program 0; of other programs there are roofs alone.
    """
    report, target = steps.report, steps.report.target
    f16, f32, exchange, f8 = (
        float(target.get(f"{name}_per_second", 0)) for name in ("f16_flops", "f32_flops", "exchange_bytes", "f8_flops")
    )
    peaks = {"f32": f32, "f8": f8 or f16}  # chips without 8-bit products cast to f16
    roofs = Roofline(f16, f32, exchange, f8_flops_per_second=f8)
    ops = report.ops
    if steps.program != 0 or not len(ops) or not (steps.op >= 0).any():
        return roofs

    def by_op(values: Array) -> Float64:
        return summed_by(steps.op, values, len(ops))

    cycles = by_op(steps.executions * steps.column("cycles"))
    is_exchange = np.asarray(steps.column("kind") == "exchange", dtype=bool)
    moved = by_op(steps.executions * steps.column("exchanged_bytes") * is_exchange)
    moving = by_op(steps.executions * steps.column("exchange_cycles"))
    flops = ops["flops"].astype(np.float64)
    order = np.argsort(-cycles, kind="stable")
    listed = order[(flops[order] > 0) & (cycles[order] > 0)][:_MOST].tolist()
    found = []
    for op in listed:
        title = steps.title_of(op, -1)
        type_ = types.of(op, title)
        peak = peaks.get(type_, f16)
        seconds = report.seconds(float(cycles[op]))
        computing = float(flops[op]) / peak if peak else 0.0
        exchanging = float(moved[op]) / exchange if exchange else 0.0
        found.append(
            Roof(
                op=op,
                title=title,
                where=steps.place_of(op),
                type=type_,
                cycles=int(cycles[op]),
                flops=int(flops[op]),
                exchanged_bytes=int(moved[op]),
                intensity=float(flops[op] / moved[op]) if moved[op] else None,
                flops_per_second=float(flops[op]) / seconds,
                peak_flops_per_second=peak,
                exchange_bytes_per_second=float(moved[op]) / report.seconds(float(moving[op])) if moving[op] else 0.0,
                bound="exchange" if exchanging > computing else "compute",
                reached=max(computing, exchanging) / seconds,
            )
        )
    return replace(roofs, ops=tuple(found))
