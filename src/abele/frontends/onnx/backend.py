"""ONNX's interface for what runs models (``onnx.backend.base``): prepare a model, run it on arrays.

Programs of the machine are compiled for one shape, and this interface tells shapes with the arrays alone: a model is
compiled when it is first run, for the shapes of its arrays, and for the elements of those that shapes depend on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from abele.arrays import Array
from abele.frontends.onnx.errors import ModelShapeError
from abele.frontends.onnx.model import Model, load

_LARGEST_HELD = 2**10
"""Largest number of elements of an input that shapes may depend on."""


def specialised(proto: onnx.ModelProto, arrays: Mapping[str, Array]) -> tuple[Model, dict[str, Array]]:
    """A model for the shapes of some arrays, and those of them that are still its inputs.

    Raises:
        ModelShapeError: Shapes depend on more than small inputs.
    """
    held: dict[str, Array] = {}
    while True:
        left = {name: a for name, a in arrays.items() if name not in held}
        try:
            return load(proto, {name: a.shape for name, a in left.items()}, held), left
        except ModelShapeError as error:
            small = [name for name, a in left.items() if a.size <= _LARGEST_HELD]
            if not error.tensor or not small:
                raise
            named = error.tensor
        # What is computed from inputs may be so from any of them: whole numbers are the likeliest.
        likeliest = min(small, key=lambda name: (name != named, left[name].dtype.kind not in "iub"))
        held[likeliest] = left[likeliest]


class PreparedModel(BackendRep):  # type: ignore[misc]
    """A model that is compiled for the shapes of each call's arrays, once for each."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._known: dict[Any, tuple[Model, dict[str, Array]]] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Results for arrays in order, or by name."""
        graph = self._proto.graph
        held = {t.name for t in graph.initializer}
        names = [v.name for v in graph.input if v.name not in held]
        given = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        arrays = {name: _array(value) for name, value in given.items()}
        key = tuple((name, a.shape, a.dtype.str) for name, a in arrays.items())
        found = self._known.get(key)
        if found is None or any(not np.array_equal(a, arrays[n]) for n, a in found[1].items()):
            model, left = specialised(self._proto, arrays)
            found = self._known[key] = model, {n: a for n, a in arrays.items() if n not in left}
        model, fixed = found
        made = model.infer({name: a for name, a in arrays.items() if name not in fixed})
        results: tuple[Any, ...] = namedtupledict("Outputs", [p.name for p in model.outputs])(*made.values())
        return results


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


class AbeleBackend(Backend):  # type: ignore[misc]
    """ONNX's backend over the machine that Abele models; ``abele.onnx.backend`` has its functions."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True if all operators of a model have a lowering."""
        from abele.frontends.onnx.support import unsupported_nodes

        return not unsupported_nodes(model)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """A model that can be run."""
        return PreparedModel(model)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Results of a model."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Results of one node on arrays.

        Args:
            node: The node.
            inputs: Arrays, in the order of its inputs that are not left out.
            device: Any name; the machine is the one that settings say.
            outputs_info: Types of its results, which are found where they are left out.
            **kwargs: ``opset``: version of the operators; the newest if left out.
        """
        names = [name for name in node.input if name]
        arrays = [_array(a) for a in inputs]
        declared = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ]
        graph = onnx.helper.make_graph(
            [node], "node", declared, [onnx.ValueInfoProto(name=name) for name in node.output if name]
        )
        version = kwargs.get("opset", onnx.defs.onnx_opset_version())
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
        return cls.run_model(model, arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for every name: all mean the modelled machine."""
        return True


is_compatible, prepare, run_model, run_node = (
    AbeleBackend.is_compatible,
    AbeleBackend.prepare,
    AbeleBackend.run_model,
    AbeleBackend.run_node,
)
supports_device = AbeleBackend.supports_device
