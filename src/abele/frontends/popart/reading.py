"""A session's model as a network: its inputs and weights, what of it comes back, and groups of replicas.

Nodes are read by the reader of ONNX files. What a builder knows beyond ONNX comes from the model's metadata: inputs
that all replicas share, and weights of which groups of replicas have their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from abele.arrays import Array
from abele.expr.derivative import arg
from abele.frontends.onnx.model import functions_of
from abele.frontends.onnx.notes import notes_of, place_of
from abele.frontends.onnx.reader import GraphReader, ModelParts
from abele.frontends.onnx.registry import Item
from abele.frontends.onnx.types import element_type, host_type
from abele.frontends.popart.anchors import (
    ACCUMULATOR_PREFIX,
    GRADIENT_PREFIX,
    STEP_PREFIX,
    UPDATED_PREFIX,
    TrainingAnchor,
    split_name,
)
from abele.frontends.popart.builder import BROADCAST, VARIABLE, versions_of
from abele.frontends.popart.dataflow import DataFlow
from abele.frontends.popart.devices import VariableRetrievalMode, VariableSettings
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.options import SessionOptions
from abele.frontends.popart.tensor_info import TensorInfo
from abele.frontends.popart.wide_integers import wide_types
from abele.network import Network, NetworkBuilder, Value, differentiate
from abele.network.ir import needed
from abele.network.ops import build


@dataclass
class SessionModel:
    """A model that is read: its network, and what of it comes back.

    Attributes:
        network: The network, whose first outputs are ``outputs``; others are made for an effect alone.
        weights: Arrays of its weights by name.
        inputs: Inputs that a step is given, by name.
        outputs: Anchored tensors that are outputs of the network.
        training: Anchors of what a training makes beside the model's own tensors.
        types: NumPy's type of each anchor, as the model has it.
        shapes: Shape of each anchor.
        infos: Type and shape of all tensors of the model.
        groups: Weights of which groups of replicas have their own values.
        broadcast: Inputs that all replicas share.
        probes: Zeros added to tensors that are no weights, whose gradient is anchored, by the anchor's name.
        unread: Inputs that nothing reads which is computed: a step need not give them.
        still: Anchors of gradients that are zero, since an operator on the way has none.
        doubles: Names of tensors of 64-bit floats that the program would compute.
    """

    network: Network
    weights: dict[str, Array]
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    training: tuple[TrainingAnchor, ...] = ()
    types: dict[str, np.dtype[Any]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    infos: dict[str, TensorInfo] = field(default_factory=dict)
    groups: dict[str, VariableSettings] = field(default_factory=dict)
    broadcast: frozenset[str] = frozenset()
    probes: dict[str, Value] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    still: frozenset[str] = frozenset()
    doubles: tuple[str, ...] = ()

    @property
    def trained(self) -> dict[str, Value]:
        """Weights that an optimiser changes, by name: not the zeros that stand for gradients."""
        zeros = {value.name for value in self.probes.values()}
        return {v.name: v for v in self.network.parameters if v.name not in zeros}


class ModelReading:
    """The reading of one model for a session.

    Args:
        proto: The model.
        folder: Folder of its data.
        options: Options of the session.
        flow: Batches of a step and its anchors.
        infos: Shapes of inputs that the model leaves open.
        loss: Name of the loss of a training; None for inference.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        folder: Path | None,
        options: SessionOptions,
        flow: DataFlow,
        infos: Mapping[str, TensorInfo],
        *,
        loss: str | None,
    ) -> None:
        self._proto, self._graph, self._options, self._infos, self._loss = proto, proto.graph, options, infos, loss
        self._anchors = flow.anchors()
        self._groups = {name: VariableSettings.of_text(text) for name, text in metadata(proto, VARIABLE).items()}
        floats = {t.name for t in self._graph.initializer if host_type(t.data_type).kind == "f"}
        parts = ModelParts(
            folder,
            versions_of(proto),
            functions_of(proto),
            training=loss is not None,
            evaluates=loss is None,
            placed=bool(options.virtualGraphMode),
            replicas=options.replicas,
            untrained=frozenset(self._groups.keys() - floats),
        )
        self._net, self._parts = NetworkBuilder(), parts
        self._reader = GraphReader(self._net, parts, parts.opsets)
        self._inputs: dict[str, Value] = {}
        self._probes: dict[str, Value] = {}

    def read(self) -> SessionModel:
        """The network and what belongs to it.

        Raises:
            popart_exception: The model, its loss or its anchors are wrong.
        """
        reader, net = self._reader, self._net
        reader.initialisers(self._graph)
        rows = {name: self._one_of_groups(name) for name in self._groups if name in reader.items}
        for declared in self._graph.input:
            if declared.name not in reader.items:
                self._inputs[declared.name] = self._enter(declared)
        self._read_nodes()
        self._check_operators()
        names = [name for name in self._anchors if not self._is_of_training(name)]
        for name in names:
            if name not in reader.items:
                raise unknown_anchor(name)
        made = {name for node in self._graph.node for name in node.output}
        if self._loss is None and len(names) == len(self._anchors) and not made.intersection(names):
            raise popart_exception("All operations in the main graph were pruned, nothing to compute")
        values = {name: reader.value(reader.items[name]) for name in names}
        loss = None if self._loss is None else self._loss_of(self._loss)
        for name in names:
            net.output(values[name])
        for effect in self._parts.effects:
            net.output(effect)
        if loss is not None:
            net.loss = loss
        model = SessionModel(
            net.finish(),
            self._parts.weights | {name: array for name, array in rows.items() if name in self._parts.weights},
            inputs=self._inputs,
            outputs=tuple(names),
            groups=self._groups,
            broadcast=frozenset(metadata(self._proto, BROADCAST)),
            probes=self._probes,
        )
        model.weights |= {value.name: np.zeros(value.shape, value.dtype.np) for value in self._probes.values()}
        wide = wide_types(self._proto)
        model.types = {name: wide.get(name) or reader.items[name].dtype for name in names}
        model.shapes = {name: values[name].shape for name in names}
        model.infos = {
            name: TensorInfo(wide.get(name) or item.dtype, item.shape) for name, item in reader.items.items()
        }
        model.doubles = tuple(n for n, i in reader.items.items() if i.dtype == np.float64 and i.value is not None)
        net_read = _read_values(model.network, model.network.outputs)
        model.unread = frozenset(name for name, value in self._inputs.items() if value not in net_read)
        self._of_training(model, [name for name in self._anchors if name not in values])
        return model

    def _is_of_training(self, name: str) -> bool:
        """True for the name of what a training makes; files of trainings have such initialisers, which are old."""
        prefix, rest = split_name(name)
        of_weight = self._loss is not None and any(t.name == rest for t in self._graph.initializer)
        return bool(prefix) and (of_weight or name not in self._reader.items)

    # --- anchors ------------------------------------------------------------------------------------------------------

    def _of_training(self, model: SessionModel, names: Iterable[str]) -> None:
        """Note anchors of what a training makes beside the model's own tensors."""
        if not names:
            return
        known, found = {v.name: v for v in model.network.parameters}, []
        needs = set() if model.network.loss is None else _read_values(model.network, [])
        for name in names:
            prefix, rest = split_name(name)
            weight = self._probes[name].name if name in self._probes else rest
            if weight not in known or self._loss is None:
                raise unknown_anchor(name)
            if known[weight] not in needs:
                raise unknown_anchor(name, because=f"the loss does not depend on {rest!r}")
            found.append(TrainingAnchor(name, prefix, weight))
            in_its_type = prefix in (GRADIENT_PREFIX, UPDATED_PREFIX)
            model.shapes[name] = () if prefix == STEP_PREFIX else known[weight].shape
            model.types[name] = known[weight].dtype.np if in_its_type else np.dtype(np.float32)
        model.training = tuple(found)
        sought = {known[anchor.weight] for anchor in found if anchor.prefix in (GRADIENT_PREFIX, ACCUMULATOR_PREFIX)}
        if sought:
            there = differentiate(model.network, sought).gradients
            model.still = frozenset(a.name for a in found if known[a.weight] in sought - there.keys())

    def _read_nodes(self) -> None:
        """Read nodes; what has its gradient anchored, and is no weight, is read with zeros added that have the same."""
        reader = self._reader
        weights = {t.name for t in self._graph.initializer}
        names = [name for name in self._anchors if name.startswith(GRADIENT_PREFIX) and self._loss is not None]
        wanted = {name.removeprefix(GRADIENT_PREFIX): name for name in names}
        wanted = {tensor: name for tensor, name in wanted.items() if tensor not in weights}
        for tensor in [t for t in wanted if t in self._inputs]:
            self._probe(tensor, wanted[tensor])
        for node in self._graph.node:
            reader.node(node)
            for tensor in [t for t in node.output if t in wanted]:
                place = place_of(notes_of(node), reader.net.place) if self._parts.placed else None
                with reader.net.at(place=place):
                    self._probe(tensor, wanted[tensor])

    def _probe(self, tensor: str, anchor: str) -> None:
        reader, item = self._reader, self._reader.items[tensor]
        if item.dtype.kind != "f":
            raise unknown_anchor(anchor, because=f"{tensor!r} has no floats")
        value = reader.value(item)
        zeros = self._probes[anchor] = reader.net.root.parameter(value.shape, value.dtype, f"{anchor}/zeros")
        reader.items[tensor] = replace(
            item, value=build.map_(reader.net, arg(0) + arg(1), [value, zeros]), known=None, fixed=False
        )

    # --- inputs, weights, the loss ------------------------------------------------------------------------------------

    def _one_of_groups(self, name: str) -> Array:
        """Rows of a weight for the session; the network has the shape of one."""
        reader, settings, replicas = self._reader, self._groups[name], self._options.replicas
        item = reader.items[name]
        assert item.known is not None
        count, whole = settings.getGroupCount(replicas), np.asarray(item.known)
        several = settings.has_groups
        if several and (not whole.ndim or len(whole) != count):
            raise popart_exception(
                f"the weight {name!r} has the shape {list(whole.shape)}, its replicas form {count} groups",
                remedy="a first dimension with an entry for each group",
            )
        row = whole[0] if several else whole
        reader.items[name] = replace(item, shape=row.shape, known=row, weight=True, fixed=False)
        if settings.mode != VariableRetrievalMode.AllReplicas:
            return whole
        rows = whole if several else whole[None]
        number = np.empty(replicas, np.intp)
        for group, members in enumerate(settings.groups(replicas)):
            number[members] = group
        return np.ascontiguousarray(rows[number])

    def _enter(self, declared: onnx.ValueInfoProto) -> Value:
        kind = declared.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or -1 for d in kind.shape.dim]
        given = self._infos.get(declared.name)
        unknown = next((d for d in dims if isinstance(d, str) or d < 0), None)
        if unknown is not None and given is None:
            shown = ", ".join(map(str, dims))
            raise popart_exception(
                f"Input tensor '{declared.name}' must be specified in InputShapeInfo, as it has shape [{shown}], which "
                f"uses an unknown value '{unknown}'."
            )
        shape = tuple(int(n) for n in (given.shape() if given is not None and unknown is not None else dims))
        value = self._net.input(shape, element_type(kind.elem_type), declared.name)
        self._reader.items[declared.name] = Item(declared.name, shape, host_type(kind.elem_type), value=value)
        return value

    def _check_operators(self) -> None:
        if self._parts.missing:
            lines = dict.fromkeys(f"{e.message}" for e in self._parts.missing)
            raise popart_exception(
                "The model has operators without a lowering",
                because="\n".join(lines),
                remedy=self._parts.missing[0].remedy,
            )

    def _loss_of(self, name: str) -> Value:
        if name not in self._reader.items:
            raise popart_exception(f"Could not find loss tensor '{name}' in main graph tensors")
        value = self._reader.value(self._reader.items[name])
        if value.size != 1:
            raise popart_exception(f"Loss tensor, '{name}', must be a scalar tensor, it has {list(value.shape)}")
        return value


def _read_values(net: Network, results: Iterable[Value]) -> set[Value]:
    """Values that operators read on the way to results and to the loss, and these themselves."""
    ends = [*results, *([] if net.loss is None else [net.loss])]
    return {*ends, *(value for op in needed(net.ops, ends) for value in op.inputs)}


def unknown_anchor(name: str, because: str | None = None) -> popart_exception:
    """The error that there is no tensor of an anchor's name."""
    return popart_exception(f"Anchor tensor `{name}' not in Ir Tensors.", because=because)


def metadata(proto: onnx.ModelProto, prefix: str) -> dict[str, str]:
    """Entries of a model's metadata for tensors, by name, under a prefix."""
    return {e.key.removeprefix(prefix): e.value for e in proto.metadata_props if e.key.startswith(prefix)}
