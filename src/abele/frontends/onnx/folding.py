"""Nodes on known tensors, computed while a model is read: shapes, axes, positions, masks.

Exported models compute their shapes by chains of such nodes (Shape, Gather, Mul, Concat, Reshape). The meaning is that
of onnx's own reference implementation, in NumPy and with 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference.ops import load_op

from abele.arrays import Array

LARGEST_KNOWN = 2**16
"""Elements of an operand or a result that is computed here; larger ones are left to the device, which makes them where
they are read."""

_LEFT_ALONE = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Identity",
        "If",
        "Loop",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Scan",
        "SequenceMap",
    }
)
"""Operators that are drawn anew in each run, have graphs inside, or leave a tensor as it is."""

_FORMS = frozenset(
    {"Add", "Cast", "Concat", "Div", "Flatten", "Mul", "Neg", "Pow", "Reciprocal", "Reshape", "Slice", "Split", "Sqrt"}
    | {"Squeeze", "Sub", "Transpose", "Unsqueeze"}
)
"""Operators that put weights into another form, computed here whatever its size."""

_SIZED = frozenset(
    {"AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "DFT", "HammingWindow", "HannWindow", "MaxUnpool"}
    | {"MelWeightMatrix", "OneHot", "Pad", "Resize", "STFT", "Upsample"}
)
"""Operators of which numbers among the operands say how many elements they make."""

_PRODUCTS = frozenset({"Conv", "Einsum", "Gemm", "MatMul"})
"""Operators whose results may have as many elements as the products of their operands' numbers of elements."""

_SLACK = 2**8
"""Bound of such products, over that of results. Chosen: 2²⁴ elements of f32 are 64 MB."""


def fold(
    node: onnx.NodeProto,
    version: int,
    inputs: Sequence[Array | None],
    opsets: Mapping[str, int],
    *,
    of_weights: bool = False,
) -> list[Array] | None:
    """Results of a standard operator on known inputs; None where it is left to the device.

    Args:
        node: The node.
        version: Version of the standard operators.
        inputs: Elements of each input; None for those that are left out.
        opsets: Version of each domain's operators.
        of_weights: True if the inputs are weights, which may be large.
    """
    if node.domain or node.op_type in _LEFT_ALONE:
        return None
    largest = LARGEST_KNOWN
    if of_weights and node.op_type in _FORMS:
        largest = max(largest, sum(a.size for a in inputs if a is not None))
    if any(a is not None and a.size > largest for a in inputs) or _makes_many(node, inputs, largest):
        return None
    try:
        runner = load_op(node.domain, node.op_type, version)
        parameters = {"log": lambda *_: None, "opsets": dict(opsets), "verbose": 0, "new_ops": None}
        with np.errstate(all="ignore"):
            made = runner(node, parameters).run(*inputs)
    except Exception:
        # The reference has gaps, and refuses what is wrong in its own words: the reader says it in ours.
        return None
    results = [np.asarray(each) for each in made]
    if any(each.dtype == object or each.dtype.kind in "US" or each.size > largest for each in results):
        return None
    return results


def _makes_many(node: onnx.NodeProto, inputs: Sequence[Any], largest: int) -> bool:
    """True if a result, or what is computed on the way to it, is large although the operands are not."""
    kind = node.op_type
    if kind == "ConstantOfShape":
        return float(np.prod(inputs[0], dtype=np.float64)) > largest
    if kind == "Expand":
        sides = np.broadcast_shapes(inputs[0].shape, tuple(int(n) for n in inputs[1]))
        return float(np.prod(sides, dtype=np.float64)) > largest
    if kind == "Tile":
        return bool(float(np.prod(inputs[1], dtype=np.float64)) * max(inputs[0].size, 1) > largest)
    if kind == "Range":
        start, limit, step = (float(np.asarray(a).reshape(-1)[0]) for a in inputs)
        return bool(step == 0 or abs(limit - start) / abs(step) > largest)
    if kind in ("Concat", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"):
        return False
    several = [a for a in inputs if a is not None and a.size > 1]
    if kind in _SIZED:
        asked = [
            1 + np.abs(a.astype(np.float64)).reshape(-1) for a in several if a.size <= 64 and a.dtype.kind in "iuf"
        ]
        return float(np.prod([each.prod() for each in asked])) > _SLACK * largest
    if kind in _PRODUCTS:
        return float(np.prod([a.size for a in several], dtype=np.float64)) > _SLACK * largest
    try:
        # Of operands that broadcast, the result has as many elements as their common shape.
        return float(np.prod(np.broadcast_shapes(*(a.shape for a in several)), dtype=np.float64)) > largest
    except ValueError:
        return False
