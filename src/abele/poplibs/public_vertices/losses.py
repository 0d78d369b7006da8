"""Losses, largest classes and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i32, u16, u32
from abele.poplibs.popnn.loss_calc import EPS_LOG
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import loop, one, state, vector, wide

Extreme = Literal["Max", "Min"]

TRANSFORM_START = 20
TRANSFORM_SLOTS = {"cross entropy": 9, "sum squared": 4}
"""Worker slots of a loss before the first vector and of each. Source: machine reference §4.10 (Softmax)."""


def families() -> list[Family]:
    """Every vertex of this module."""
    floats, labels = type_of(f32, f16), type_of(u32, i32, name="label")
    values = type_of(f32, f16, i32, u32, name="activations")
    found = [
        Family(
            "LossSumSquaredTransform",
            (floats,),
            _transform(False),
            "sure",
            "deltas = probs − expected; transformed = ½ · deltas²",
        ),
        Family(
            "LossCrossEntropyTransform",
            (floats,),
            _transform(True),
            "likely",
            "transformed = −expected · (log(probs + ε) − log s); deltas = (probs − expected · s) · d / s, of s "
            "modelOutputScaling and d deltasScale",
        ),
    ]
    for which in ("Max", "Min"):
        extreme: Extreme = "Max" if which == "Max" else "Min"
        found += [
            Family(
                f"Reduce{which}ClassGather",
                (values, labels),
                _gather(extreme),
                "likely",
                "of each stretch of 2^divisorLog2 the best value and index + its place",
            ),
            Family(
                f"Reduce{which}ClassSparse",
                (labels,),
                _sparse(extreme),
                "likely",
                "the best of activations and its label",
                ((values, labels),),
            ),
        ]
    found.append(
        Family("CalcAccuracy", (labels,), _accuracy, "sure", "numCorrect += places where maxPerBatch is expected")
    )
    return found


def _transform(cross_entropy: bool) -> Callable[..., Instance]:
    def make(dtype: ElementType) -> Instance:
        fields = [vector("probs", dtype), vector("expected", dtype, "Input", "ONE_PTR")]
        fields += [vector(n, dtype, "Output", "ONE_PTR") for n in ("deltas", "transformed")]
        fields.append(state("size", u16))
        p, t = wide("self.probs[i]", dtype, f32), wide("self.expected[i]", dtype, f32)
        if cross_entropy:
            fields += [one("deltasScale", dtype), one("modelOutputScaling", dtype)]
            head = [
                f"s = {wide('self.modelOutputScaling', dtype, f32)}",
                f"d = {wide('self.deltasScale', dtype, f32)}",
                "base = log(s)",
            ]
            delta, term = "d / s * (p - t * s)", f"-(t * (log(p + {EPS_LOG[dtype]!r}) - base))"
        else:
            head, delta, term = [], "p - t", "0.5 * delta * delta"
        body = [
            f"p = {p}",
            f"t = {t}",
            f"delta = {delta}",
            f"self.deltas[i] = {wide('delta', f32, dtype)}",
            f"self.transformed[i] = {wide(term, f32, dtype)}",
        ]
        slots = TRANSFORM_SLOTS["cross entropy" if cross_entropy else "sum squared"]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            size = np.asarray(v.size, np.int64)
            return TRANSFORM_START + slots * (size if dtype == f32 else -(-size // 2))

        return Instance("Vertex", tuple(fields), (*head, *loop("i64(self.size)", body)), cycles)

    return make


def _gather(extreme: Extreme) -> Callable[..., Instance]:
    def make(dtype: ElementType, label: ElementType) -> Instance:
        low = extreme.lower()
        kind = f32 if dtype.is_float else dtype
        fields = (
            vector("activations", dtype, "Input", "ONE_PTR"),
            state("index", label),
            vector(f"{low}Value", kind, "Output", "ONE_PTR", 4),
            vector(f"{low}Index", label, "Output", "ONE_PTR", 4),
            state("size", u32),
            state("divisorLog2", u16),
        )
        inner = [
            f"v = {wide('self.activations[i]', dtype, kind)}",
            f"if v {'>' if extreme == 'Max' else '<'} best:",
            "    best = v",
            "    at = i",
        ]
        body = [
            "size = i64(self.size)",
            "step = i64(1) << i64(self.divisorLog2)",
            *loop(
                "(size + step - 1) // step",
                [
                    "at = k * step",
                    f"best = {wide('self.activations[at]', dtype, kind)}",
                    "for i in range(k * step + 1, min(k * step + step, size)):",
                    *(f"    {line}" for line in inner),
                    f"self.{low}Value[k] = best",
                    f"self.{low}Index[k] = self.index + {label.name}(at)",
                ],
                "k",
            ),
        ]
        return Instance("SupervisorVertex", fields, tuple(body))

    return make


def _sparse(extreme: Extreme) -> Callable[..., Instance]:
    def make(*types: ElementType) -> Instance:
        dtype, label = (f32, types[0]) if len(types) == 1 else types
        low = extreme.lower()
        fields = (
            vector("activations", dtype),
            vector("labels", label, "Input", "ONE_PTR"),
            one(f"{low}Value", dtype, "Output"),
            one(f"{low}Index", label, "Output"),
        )
        body = [
            "at = i64(0)",
            *loop(
                "len(self.activations)",
                [f"if self.activations[i] {'>' if extreme == 'Max' else '<'} self.activations[at]:", "    at = i"],
            ),
            f"self.{low}Value = self.activations[at]",
            f"self.{low}Index = self.labels[at]",
        ]
        return Instance("Vertex", fields, tuple(body))

    return make


def _accuracy(label: ElementType) -> Instance:
    fields = (
        vector("maxPerBatch", label),
        vector("expected", label, "Input", "ONE_PTR"),
        one("numCorrect", u32, "InOut"),
    )
    body = [
        "right = u32(0)",
        *loop("len(self.maxPerBatch)", ["right = right + u32(self.maxPerBatch[i] == self.expected[i])"]),
        "self.numCorrect = self.numCorrect + right",
    ]
    return Instance("Vertex", fields, tuple(body))
