"""``abele.onnx.export``: networks, and what holds them, as ONNX models."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from abele.errors import InvalidOptionError, SignatureError, UnknownArrayError, nearest
from abele.frontends.onnx.exporting.graph import GraphWriter, code_of, info
from abele.frontends.onnx.model import Model, ModelPort
from abele.frontends.onnx.types import type_code
from abele.frontends.onnx.writing import write_model
from abele.network import Network, Value
from abele.numerics import ElementType

OLDEST = 17
"""Oldest opset that is written: the first with layer norms. Chosen."""


@runtime_checkable
class HoldsNetwork(Protocol):
    """Holders of a network and its weights, such as a wrapped model of PyTorch or a compiled function."""

    def __abele_network__(self) -> tuple[Network, Mapping[str, Any]]:
        """The network as it was recorded, and its weights by name."""


@dataclass(frozen=True)
class _End:
    """An input or a result of the model that is written: its name and the number of its type."""

    name: str
    code: int


def export(
    what: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = OLDEST,
    weights: Mapping[str, npt.ArrayLike] | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    name: str | None = None,
) -> onnx.ModelProto:
    """A network as an ONNX model.

    What is written computes the outputs of one run: dropout does nothing, and changes of weights and state are left
    out. Random numbers are drawn anew.

    Args:
        what: A network; or what holds one: a model of ``abele.onnx``, of PopTorch after its first run, a function of
            ``abele.jax``, a model of Keras on the device.
        path: File to write; none to write none.
        opset: Version of the standard operators.
        weights: Parameters and buffers by name; by default those that ``what`` holds.
        names: Names of the inputs and of the outputs; by default those that they have.
        name: Name of the graph.

    Raises:
        InvalidOptionError: There is no such opset, or nothing in ``what`` is a network.
        UnknownArrayError: A weight is not given.
        SignatureError: ``names`` are more or fewer than the inputs or outputs; or a weight has another shape.
        UnsupportedOpError: ONNX has nothing for an op of the network; the error names it and where it comes from.
        FileFormatError: The place cannot be written.
    """
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise InvalidOptionError(f"opset={opset}: opsets {OLDEST} to {newest} can be written")
    network, held, ends = _network_of(what)
    entering, leaving = ends if names is None else _named(network, *names)
    called = name or getattr(what, "name", None)
    proto = _ModelWriter(network, held if weights is None else weights, opset).model(
        entering, leaving, called if isinstance(called, str) else "network"
    )
    if path is not None:
        write_model(proto, Path(path))
    return proto


def _network_of(what: Any) -> tuple[Network, Mapping[str, Any], tuple[list[_End], list[_End]]]:
    """The network of something, its weights, and its ends."""
    if isinstance(what, Model):
        entering, leaving = ([_End(p.name, type_code(p.dtype)) for p in side if p.size] for side in _ports(what))
        return what.network, what.weights, (entering, leaving)
    if isinstance(what, HoldsNetwork):
        network, held = what.__abele_network__()
        return network, held, _ends(network)
    if isinstance(what, Network):
        return what, {}, _ends(what)
    raise InvalidOptionError(
        f"a {type(what).__name__} holds no network that could be exported",
        remedy="a Network, a model of abele.onnx, PopTorch or Keras, or a function of abele.jax",
    )


def _ports(model: Model) -> tuple[tuple[ModelPort, ...], tuple[ModelPort, ...]]:
    return model.inputs, model.outputs


def _ends(network: Network) -> tuple[list[_End], list[_End]]:
    entering = [_End(v.name or f"input{n}", _code(network, v)) for n, v in enumerate(network.inputs)]
    return entering, [_End(v.name or f"output{n}", _code(network, v)) for n, v in enumerate(network.outputs)]


def _named(network: Network, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[list[_End], list[_End]]:
    for what, given, values in (("inputs", inputs, network.inputs), ("outputs", outputs, network.outputs)):
        if len(given) != len(values) or len(set(given)) != len(given):
            raise SignatureError(f"names= has {list(given)} for the {len(values)} {what} of the network")
    return (
        [_End(n, _code(network, v)) for n, v in zip(inputs, network.inputs, strict=True)],
        [_End(n, _code(network, v)) for n, v in zip(outputs, network.outputs, strict=True)],
    )


_WIDE = {"i32": TensorProto.INT64, "u32": TensorProto.UINT64}


def _code(network: Network, value: Value) -> int:
    """Number of the type of an input or a result, which has 64 bits where the user's has."""
    return int(_WIDE[value.dtype.name]) if value in network.wide and value.dtype.name in _WIDE else code_of(value.dtype)


class _ModelWriter:
    """A network being written.

    Args:
        network: The network.
        weights: Its weights by name.
        opset: Version of the standard operators.
    """

    def __init__(self, network: Network, weights: Mapping[str, Any], opset: int) -> None:
        self.network, self.weights = network, weights
        self.to = GraphWriter(opset, dict(_bounds(network)))

    def model(self, entering: Sequence[_End], leaving: Sequence[_End], name: str) -> onnx.ModelProto:
        """The whole model."""
        to, network = self.to, self.network
        needed = {v for op in network.needed(network.outputs) for v in op.inputs} | set(network.outputs)
        inputs = []
        # Ends have their names before anything inside, so that none of theirs is changed.
        final = [to.unique(end.name) for end in leaving]
        for end, value in zip(entering, network.inputs, strict=True):
            given = to.unique(end.name)
            inputs.append(info(given, value.shape, end.code))
            to.bind(value, given)
            self._entered(value, given, end.code)
        for value in (*network.parameters, *network.buffers, *network.accumulators):
            if value in needed:
                to.bind(value, to.initializer(self._weight(value), value.name or "weight"))
        if network.seed is not None:
            to.bind(network.seed, "")
        made = to.ops(network.ops, network.outputs)
        to.at = None
        outputs = []
        for end, given, value, inner in zip(leaving, final, network.outputs, made, strict=True):
            self._leave(inner, value.dtype, given, end.code)
            outputs.append(info(given, value.shape, end.code))
        read = _names_read(to.nodes)
        graph = helper.make_graph(
            to.nodes, _plain(name), inputs, outputs, [t for n, t in to.initializers.items() if n in read]
        )
        opsets = [helper.make_opsetid("", to.opset)]
        return helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets),
            producer_name="abele",
        )

    def _entered(self, value: Value, given: str, code: int) -> None:
        if code != code_of(value.dtype):
            self.to.bind(value, self.to.node("Cast", given, to=code_of(value.dtype)))

    def _leave(self, inner: str, dtype: ElementType, name: str, code: int) -> None:
        """A result under its name."""
        same = code == code_of(dtype)
        attrs = {} if same else {"to": code}
        self.to.nodes.append(helper.make_node("Identity" if same else "Cast", [inner], [name], name=name, **attrs))

    def _weight(self, value: Value) -> Any:
        if value in self.network.accumulators:
            return np.zeros(value.shape, value.dtype.np)
        if value.name not in self.weights:
            close = nearest(value.name, list(self.weights))
            raise UnknownArrayError(
                f"the network's weight {value} is not given",
                remedy=f"weights={{{value.name!r}: …}}" + (f"; {close!r} is given" if close else ""),
            )
        array = np.asarray(self.weights[value.name])
        if array.shape != value.shape:
            raise SignatureError(f"the weight {value} was given as {array.dtype.name}{list(array.shape)}")
        return array.astype(value.dtype.np)


def _names_read(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Names that nodes read, those in graphs inside included."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found |= _names_read(attribute.g.node)
    return found


def _bounds(network: Network) -> Iterator[tuple[Value, tuple[int, int]]]:
    """Ranges of whole numbers that runs check, and those of views of them."""
    known = {b.value: (b.lowest, b.limit) for b in network.bounds if b.exception is None}
    for op in network.ops:
        if op.kind in ("reshape", "cast", "permute", "slice", "expand") and op.inputs[0] in known:
            known.setdefault(op.output, known[op.inputs[0]])
        elif op.kind == "constant" and op.output.dtype.kind in ("int", "uint"):
            contents = network.constants[op.output]
            if contents.size:
                known[op.output] = int(contents.min()), int(contents.max()) + 1
    yield from known.items()


def _plain(name: str) -> str:
    """A name of letters, digits and underscores."""
    return re.sub(r"\W+", "_", name).strip("_") or "network"
