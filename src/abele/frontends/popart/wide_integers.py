"""Integers of 64 bits, of which the device has 32: types of anchors as the model has them, and inputs that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from abele.arrays import Array
from abele.frontends.onnx.types import host_type
from abele.frontends.popart.builder import versions_of
from abele.frontends.popart.errors import popart_runtime_error

_WIDE = (TensorProto.INT64, TensorProto.UINT64)


def wide_types(proto: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """Types of the tensors of 64-bit integers, as the model has them: the device has 32 bits of each.

    They follow from ONNX's own inference, of a copy without the data of weights.
    """
    graph = onnx.GraphProto()
    graph.name = "types"
    graph.node.extend(proto.graph.node)
    graph.input.extend(proto.graph.input)
    declared = {v.name for v in proto.graph.input}
    for tensor in proto.graph.initializer:
        if tensor.name not in declared:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    model = onnx.ModelProto(graph=graph, ir_version=8, opset_import=proto.opset_import, functions=proto.functions)
    if not any(o.domain in ("", "ai.onnx") for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", versions_of(proto)[""]))
    try:
        found = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        found = graph  # Of a model that ONNX does not understand, inputs and results say their types.
    every = (*found.input, *found.value_info, *proto.graph.output)
    kinds = {v.name: v.type.tensor_type.elem_type for v in every}
    return {name: host_type(kind) for name, kind in kinds.items() if kind in _WIDE}


def narrow(name: str, array: Array) -> Array:
    """An array whose 64-bit integers fit 32 bits.

    Raises:
        popart_runtime_error: Some do not.
    """
    if array.dtype not in (np.int64, np.uint64) or not array.size:
        return array
    limits = np.iinfo(np.int32 if array.dtype == np.int64 else np.uint32)
    if array.min() < limits.min or array.max() > limits.max:
        raise popart_runtime_error(
            f"the input {name!r} has 64-bit integers that do not fit the 32 bits that the device has",
            because=f"they are from {array.min()} to {array.max()}",
            remedy=f"numbers from {limits.min} to {limits.max}",
        )
    return array
