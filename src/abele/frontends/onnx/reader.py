"""Reading graphs: each node becomes ops of a network, or of a region of one.

A tensor of the model is an :class:`~abele.frontends.onnx.registry.Item`: nodes whose inputs are all known are computed
here (:mod:`~abele.frontends.onnx.folding`), so that what is left are the nodes that a run has to compute. Functions of
the model are read in their place, and so are those that ONNX defines a standard operator by, where there is no handler.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from abele.arrays import Array
from abele.errors import AbeleError, UnsupportedOpError
from abele.frontends.onnx.errors import ModelError
from abele.frontends.onnx.files import tensor_array
from abele.frontends.onnx.folding import fold
from abele.frontends.onnx.notes import hint_of, is_note, notes_of, place_of
from abele.frontends.onnx.origins import origin_of
from abele.frontends.onnx.registry import Item, NodeCall, call_handler, domain_of, find
from abele.frontends.onnx.types import MOST_MADE, check_size, device_type
from abele.network import BlockBuilder, Place, Value
from abele.network.ops.own_op import OWN_OPS, OwnOp, key_of

MOST_NODES = 2**15
"""Nodes that are read of one model, with repetition, beside 16 times its own."""
_PUBLIC = ("", "ai.graphcore", "ai.onnx.ml", "com.microsoft")
"""Domains whose operators are no user's own."""
MOST_CALLS = 64
"""Functions that call each other, one inside of the next."""


@dataclass
class ModelParts:
    """Parts of a model for all its graphs.

    Attributes:
        folder: Folder of its data; None if it came as bytes.
        file: Name of its file, beside which a node's number stands for a source line; empty to give none.
        opsets: Version of the operators of each domain.
        functions: Functions of the model, by domain, name and overload.
        training: True if nodes mean what they mean in training, and weights change.
        evaluates: True if norms use running statistics, whatever their nodes say.
        untrained: Initialisers that stay as they are in training.
        replicas: Replicas of the program.
        placed: True if notes on nodes say on which IPUs they run.
        stages: Place from the node on that makes a tensor, by the tensor's name; of the model's own graph.
        place: Place of the nodes that come next, once a stage has begun.
        begins: Number of ops before each node of the model's own graph, and the first tensor that it makes.
        prepares: True if what is computed of weights alone is a weight as well, computed on the host.
        weights: Initialisers that became parameters or buffers of the network, by name; and prepared ones.
        prepared: Weights that are computed of initialisers, by name.
        forms: Tensors computed of weights, by their description.
        missing: Nodes without a lowering, of all graphs.
        effects: Results of nodes that only have an effect, which a run has to compute too.
        num_nodes: Nodes that were read so far, those of functions again for each call.
        most_nodes: Nodes after which the model is given up.
    """

    folder: Path | None
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], onnx.FunctionProto]
    file: str = ""
    training: bool = False
    evaluates: bool = False
    untrained: frozenset[str] = frozenset()
    replicas: int = 1
    placed: bool = False
    stages: Mapping[str, Place] = field(default_factory=dict)
    place: Place | None = None
    begins: list[tuple[int, str]] = field(default_factory=list)
    prepares: bool = False
    weights: dict[str, Array] = field(default_factory=dict)
    prepared: dict[str, Item] = field(default_factory=dict)
    forms: dict[Hashable, Item] = field(default_factory=dict)
    missing: list[UnsupportedOpError] = field(default_factory=list)
    effects: list[Value] = field(default_factory=list)
    num_nodes: int = 0
    most_nodes: int = MOST_NODES

    def count_node(self) -> None:
        """Count a node that is read: functions that call each other twice would be read for years.

        Raises:
            ModelError: There are too many.
        """
        self.num_nodes += 1
        if self.num_nodes > self.most_nodes:
            raise ModelError(
                f"the model has over {self.most_nodes:,} nodes where functions and graphs inside are read in place",
                remedy="write repeated functions and conditions as a loop",
            )


@dataclass
class GraphReader:
    """Reads nodes into one block.

    Attributes:
        net: The block.
        parts: Parts of the model for all graphs.
        items: Tensors by name.
        outer: Reader of the graph around, whose tensors may be read here too.
        opsets: Version of the operators of each domain, of the model or of a function.
        attributes: Attributes of the node that calls a function, inside of it.
        calling: Functions that are being read, outermost first.
    """

    net: BlockBuilder
    parts: ModelParts
    opsets: Mapping[str, int]
    items: dict[str, Item] = field(default_factory=dict)
    outer: GraphReader | None = None
    attributes: Mapping[str, AttributeProto] | None = None
    calling: tuple[tuple[str, str, str], ...] = ()

    # --- tensors ------------------------------------------------------------------------------------------------------

    def item(self, name: str) -> Item:
        """A tensor by its name, here or around.

        Raises:
            ModelError: Nothing makes it before it is read.
        """
        reader: GraphReader | None = self
        while reader is not None:
            if name in reader.items:
                return reader.items[name]
            reader = reader.outer
        raise ModelError(
            f"the model reads {name!r}, which no node before makes",
            at=self.net.origin.text or None,
            remedy="sort its nodes, each after those that it reads; onnx.checker.check_model shows more",
        )

    def value(self, item: Item) -> Value:
        """A tensor in the network."""
        if item.value is None:
            assert item.known is not None
            # Of the whole network, since blocks inside and after may read it too.
            item.value = self._weight(item) if item.weight else self.constant(self.net.root, item.known, item.name)
        return item.value

    def _weight(self, item: Item) -> Value:
        assert item.known is not None
        if item.recipe is not None:
            name, number = item.name, 2
            while item.name in self.parts.weights:
                item.name, number = f"{name}/{number}", number + 1
            self.parts.prepared[item.name] = item
        self.parts.weights[item.name] = item.known
        held = item.name in self.parts.untrained or not is_float(item.dtype)
        make = self.net.root.buffer if held else self.net.root.parameter
        return make(item.shape, device_type(item.dtype), item.name)

    def constant(self, net: BlockBuilder, array: Array, name: str = "") -> Value:
        """A constant; one number all over is kept as one element."""
        given = np.asarray(array)
        if given.ndim and given.size > 1 and (given == given.flat[0]).all():
            given = np.broadcast_to(given.flat[0], given.shape)
        return net.constant(given, device_type(np.asarray(array).dtype), name)

    def known(self, name: str, array: Any) -> Item:
        """A tensor that is known and stays so."""
        given = np.asarray(array)
        return Item(name, given.shape, given.dtype, given, fixed=True)

    def made(self, name: str, value: Value, dtype: np.dtype[Any] | None = None) -> Item:
        """A tensor of the network."""
        contents = self.net.contents(value)
        known = contents is not None and contents.size <= 2**10
        return Item(name, value.shape, dtype or value.dtype.np, contents if known else None, fixed=known, value=value)

    # --- graphs -------------------------------------------------------------------------------------------------------

    def initialisers(self, graph: onnx.GraphProto) -> None:
        """Let the tensors that a graph comes with be known; those of floats become parameters where they are read."""
        if self.outer is None:
            self.parts.untrained |= running_statistics(graph)
        for tensor in graph.initializer:
            self._initialiser(tensor.name, tensor_array(tensor, self.parts.folder))
        for sparse in graph.sparse_initializer:
            self._initialiser(sparse.values.name, _dense(sparse, self.parts.folder))

    def _initialiser(self, name: str, array: Array) -> None:
        item = self.items[name] = self.known(name, array)
        if self.outer is None and is_weight(array):
            item.weight = True
            item.fixed = not self.parts.training or name in self.parts.untrained

    def nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Append what nodes mean, in their order."""
        for node in nodes:
            self.node(node)

    def inside(self, net: BlockBuilder, **changes: Any) -> GraphReader:
        """A reader of a graph inside of this one, into a block."""
        return replace(self, net=net, items={}, outer=self, **changes)

    def body(self, graph: onnx.GraphProto, net: BlockBuilder, arguments: Sequence[Item]) -> list[Item]:
        """Results of a graph inside of a node, appended to a block.

        Args:
            graph: The graph.
            net: The block.
            arguments: A tensor for each of its inputs.
        """
        reader = self.inside(net)
        reader.initialisers(graph)
        for declared, item in zip(graph.input, arguments, strict=False):
            reader.items[declared.name] = item
        reader.nodes(graph.node)
        return [reader.item(v.name) for v in graph.output]

    def outputs(self, items: Iterable[Item]) -> list[Value]:
        """Tensors in the network."""
        return [self.value(item) for item in items]

    # --- nodes --------------------------------------------------------------------------------------------------------

    def node(self, node: onnx.NodeProto) -> None:
        """Append what a node means."""
        self.parts.count_node()
        notes = notes_of(node)
        around = self.net.origin
        if self.outer is None and not self.calling:
            self._begin(node)
            if self.parts.file:
                around = replace(around, file=self.parts.file, line=len(self.parts.begins))
        place = place_of(notes, self.net.place) if self.parts.placed else self.parts.place
        with self.net.at(origin_of(node, around), place=place, hint=hint_of(notes)):
            try:
                inputs = [self.item(name) if name else None for name in node.input]
                made = self._results(node, inputs)
            except UnsupportedOpError as error:
                # The others are looked for as well: nothing of what such a node makes is looked at.
                self.parts.missing.append(error)
                made = [_Missing(name) for name in node.output]
            except _MissingReadError:
                made = [_Missing(name) for name in node.output]
            except AbeleError as error:
                error.at = error.at or self.net.origin.location or self.net.origin.text or None
                raise
            except Exception as error:
                # A model may say anything, and no handler looks for all of what is wrong with it.
                raise ModelError(
                    f"{_title(node)} is no such node as ONNX has: {type(error).__name__}: {_first_line(error)}",
                    at=self.net.origin.location or self.net.origin.text or None,
                    remedy="onnx.checker.check_model(model, full_check=True) shows more",
                ) from error
        for name, item in zip(node.output, made, strict=False):
            if not name:
                continue
            if item is None:
                item = _Missing(name)
            check_size(f"the result {name!r} of {_title(node)}", item.shape)
            if name in self.items and self.attributes is None:
                raise ModelError(f"two nodes of the model make {name!r}", at=node.name or node.op_type)
            # A weight keeps the name of its initialiser, under which it is trained and written.
            self.items[name] = item if item.name == name or item.weight else replace(item, name=name)

    def _begin(self, node: onnx.NodeProto) -> None:
        """Keep in mind where a node of the model's own graph begins, and begin the stage that begins with it."""
        made = next(filter(None, node.output), "")
        self.parts.begins.append((len(self.net.root.ops), made))
        for name in node.output:
            self.parts.place = self.parts.stages.get(name, self.parts.place)

    def _results(self, node: onnx.NodeProto, inputs: list[Item | None]) -> Sequence[Item | None]:
        domain = domain_of(node.domain)
        if any(isinstance(item, _Missing) for item in inputs):
            raise _MissingReadError
        function = self.parts.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        if function is not None:
            return self._function(function, node, inputs)
        version = self.opsets.get(domain)
        if version is None:
            raise UnsupportedOpError(
                f"{node.op_type} {node.name!r} is of the domain {domain!r}, of which the model names no version",
                remedy="add the domain to its opset_import",
            )
        known = [item.known if item is not None and item.fixed else None for item in inputs]
        if all(item is None or item.fixed for item in inputs):
            plain = self._plain(node)
            of_weights = self.parts.prepares and any(item is not None and item.weight for item in inputs)
            folded = fold(plain, version, known, self.opsets, of_weights=of_weights)
            if folded is not None and of_weights:
                return self._prepared(plain, version, inputs, folded)
            if folded is not None:
                return [self.known(name, each) for name, each in zip(node.output, folded, strict=False)]
        entry = find(domain, node.op_type, version)
        own = OWN_OPS.get(key_of(node.op_type, domain, version)) if entry is None and domain else None
        if own is not None:
            return self._own(own, node, version, inputs)
        if entry is None:
            body = _schema_body(node, domain, version, inputs)
            if body is not None:
                return self._function(body, node, inputs)
            raise UnsupportedOpError(
                f"{node.op_type} {node.name!r} has no lowering"
                if not domain
                else f"{node.op_type} {node.name!r} of the domain {domain!r} has no lowering",
                at=self.net.origin.location or None,
                remedy="express it with operators that have one (docs/onnx_operators.md)"
                + (f", or register it, version {version} (docs/custom_ops.md)" if domain not in _PUBLIC else ""),
            )
        call = NodeCall(self, self.net, node, version, inputs)
        made = call_handler(call, entry, self._attributes(node))
        several = made if isinstance(made, (tuple, list)) else [made]
        return [self._item(name, each) for name, each in zip(node.output, several, strict=False)]

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """Attributes of a node by name, without notes."""
        return {a.name: self._attribute(a) for a in node.attribute if self._is_given(a) and not is_note(a.name)}

    def _own(
        self, own: OwnOp, node: onnx.NodeProto, version: int, inputs: Sequence[Item | None]
    ) -> Sequence[Item | None]:
        """Results of an operator that a user registered."""
        from abele.frontends.onnx.ops.own import own_results

        made = own_results(NodeCall(self, self.net, node, version, inputs), own, self._attributes(node))
        return [self._item(name, each) for name, each in zip(node.output, made, strict=False)]

    def _prepared(
        self, node: onnx.NodeProto, version: int, inputs: Sequence[Item | None], results: Sequence[Array]
    ) -> list[Item]:
        """Results of a node on weights: weights as well, which are computed anew when those change."""
        opsets = dict(self.opsets)

        def recipe(number: int) -> Callable[[Callable[[Item], Array]], Array]:
            def elements(of: Callable[[Item], Array]) -> Array:
                arrays = [None if item is None else of(item) for item in inputs]
                made = fold(node, version, arrays, opsets, of_weights=True)
                assert made is not None, node.op_type
                return made[number]

            return elements

        attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
        of = (node.op_type, attributes, *(None if item is None else item.description for item in inputs))
        made = []
        for number, (name, array) in enumerate(zip(node.output, results, strict=False)):
            item = self.known(name, array)
            item.weight, item.recipe, item.made_by = item.size > 0, recipe(number), (number, of)
            made.append(self.parts.forms.setdefault(item.made_by, item))
        return made

    def _item(self, name: str, made: Any) -> Item | None:
        if made is None or isinstance(made, Item):
            return made
        return self.made(name, made) if isinstance(made, Value) else self.known(name, made)

    def _function(
        self, function: onnx.FunctionProto, node: onnx.NodeProto, inputs: Sequence[Item | None]
    ) -> Sequence[Item | None]:
        """Results of a function, read in the place of the node that calls it."""
        key = (function.domain, function.name, getattr(function, "overload", ""))
        if key in self.calling:
            raise ModelError(f"the function {function.name!r} of the model calls itself")
        if len(self.calling) >= MOST_CALLS:
            raise ModelError(f"more than {MOST_CALLS} functions of the model call each other, one inside of the next")
        given = {a.name: self._resolved(a) for a in node.attribute if self._is_given(a)}
        for default in function.attribute_proto:
            given.setdefault(default.name, default)
        opsets = {**self.opsets, **{domain_of(o.domain): o.version for o in function.opset_import}}
        reader = replace(self, items={}, outer=None, opsets=opsets, attributes=given, calling=(*self.calling, key))
        for number, name in enumerate(function.input):
            item = inputs[number] if number < len(inputs) else None
            reader.items[name] = _Absent(name) if item is None else item
        reader.nodes(reader._present(n) for n in function.node)
        return [reader.items.get(name) for name in function.output]

    def _present(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node of a function without the inputs that its call leaves out."""
        absent = [i for i, name in enumerate(node.input) if name and isinstance(self.items.get(name), _Absent)]
        if not absent:
            return node
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for place in absent:
            copy.input[place] = ""
        return copy

    # --- attributes ---------------------------------------------------------------------------------------------------

    def _is_given(self, attribute: AttributeProto) -> bool:
        return not attribute.ref_attr_name or attribute.ref_attr_name in (self.attributes or {})

    def _resolved(self, attribute: AttributeProto) -> AttributeProto:
        if not attribute.ref_attr_name:
            return attribute
        named = AttributeProto()
        named.CopyFrom((self.attributes or {})[attribute.ref_attr_name])
        named.name = attribute.name
        return named

    def _plain(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node with attributes of its own alone."""
        if not any(a.ref_attr_name for a in node.attribute):
            return node
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.attribute[:]
        copy.attribute.extend(self._resolved(a) for a in node.attribute if self._is_given(a))
        return copy

    def _attribute(self, attribute: AttributeProto) -> Any:
        resolved = self._resolved(attribute)
        match resolved.type:
            case AttributeProto.TENSOR:
                return tensor_array(resolved.t, self.parts.folder)
            case AttributeProto.SPARSE_TENSOR:
                return _dense(resolved.sparse_tensor, self.parts.folder)
            case AttributeProto.GRAPH:
                return resolved.g
            case AttributeProto.STRING:
                return resolved.s.decode("utf-8", "replace")
            case AttributeProto.STRINGS:
                return tuple(s.decode("utf-8", "replace") for s in resolved.strings)
            case AttributeProto.INTS | AttributeProto.FLOATS:
                return tuple(onnx.helper.get_attribute_value(resolved))
        return onnx.helper.get_attribute_value(resolved)


class _MissingReadError(Exception):
    """A node reads what a node without a lowering would make."""


class _Missing(Item):
    """A result that nothing makes: of a node without a lowering."""

    def __init__(self, name: str) -> None:
        super().__init__(name, (), np.dtype(np.float32))


class _Absent(_Missing):
    """An input of a function that its call leaves out."""


def _title(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name!r}" if node.name else str(node.op_type)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def running_statistics(graph: onnx.GraphProto) -> frozenset[str]:
    """Names of the means and variances that batch norms keep: no gradient changes them, their own new ones do."""
    return frozenset(n for node in graph.node if node.op_type == "BatchNormalization" for n in node.input[3:5])


def is_weight(array: Array) -> bool:
    """True for initialisers that are parameters in the network: floats of at least one dimension."""
    return array.ndim > 0 and array.size > 0 and is_float(array.dtype)


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for floats of any size, those that NumPy does not have included."""
    return np.dtype(dtype).kind not in "biu"


def _dense(sparse: onnx.SparseTensorProto, folder: Path | None) -> Array:
    """A sparse tensor with its zeros."""
    values, indices = tensor_array(sparse.values, folder), tensor_array(sparse.indices, folder)
    shape = tuple(sparse.dims)
    size = check_size(f"the sparse tensor {sparse.values.name!r}", shape, MOST_MADE)
    if indices.dtype.kind not in "iu" or indices.ndim not in (1, 2):
        raise ModelError(f"the sparse tensor {sparse.values.name!r} has no whole numbers as positions")
    if indices.ndim == 2 and (indices.shape[1] != len(shape) or (indices < 0).any() or (indices >= shape).any()):
        raise ModelError(f"the sparse tensor {sparse.values.name!r} has elements outside of its shape {list(shape)}")
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape, mode="clip")
    if values.ndim != 1 or len(flat) != len(values) or (len(flat) and not (flat.min() >= 0 and flat.max() < size)):
        raise ModelError(f"the sparse tensor {sparse.values.name!r} has elements outside of its shape {list(shape)}")
    dense = np.zeros(size, values.dtype)
    dense[flat] = values
    return dense.reshape(shape)


def _schema_body(
    node: onnx.NodeProto, domain: str, version: int, inputs: Sequence[Item | None]
) -> onnx.FunctionProto | None:
    """The function that ONNX defines an operator by; None if it does not."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        body = onnx.FunctionProto()
        body.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        types = [_type(item) for item in inputs]
        try:
            text = schema.get_context_dependent_function(
                node.SerializeToString(), [t.SerializeToString() for t in types]
            )
        except Exception:
            return None
        body = onnx.FunctionProto()
        body.ParseFromString(text)
    else:
        return None
    if not body.node:
        return None
    for name, default in schema.attributes.items():
        # What the schema has as a default, the body reads as an attribute of the call.
        if default.default_value.type and name not in {a.name for a in body.attribute_proto}:
            body.attribute_proto.append(default.default_value)
    return body


def _type(item: Item | None) -> onnx.TypeProto:
    made = onnx.TypeProto()
    if item is not None:
        made.tensor_type.elem_type = int(onnx.helper.np_dtype_to_tensor_dtype(item.dtype))
        made.tensor_type.shape.Clear()
        for extent in item.shape:
            made.tensor_type.shape.dim.add().dim_value = extent
    return made
