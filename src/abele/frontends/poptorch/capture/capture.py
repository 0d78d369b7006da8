"""Capture: one call of a PyTorch model as a network, with its loss, its weights and the shape of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from abele.errors import AbeleError, UnsupportedOpError
from abele.frontends.poptorch.capture import aten as _handlers
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.aten.losses import IDENTITY_LOSS, LOSSES
from abele.frontends.poptorch.capture.decomposition import decomposed, operands_of
from abele.frontends.poptorch.capture.registry import all_missing, convert, handler_of, no_handler
from abele.frontends.poptorch.capture.types import element_type, host_dtype
from abele.frontends.poptorch.errors import Error
from abele.numerics import f32
from abele.parallel import Network, NetworkBuilder, Value, verify
from abele.parallel.ops import build

_ANY_LOSS = LOSSES | {IDENTITY_LOSS}

assert _handlers, "importing the package registers the handlers"


@dataclass(frozen=True)
class OutputLeaf:
    """One leaf of what the model returns.

    Attributes:
        position: Its place among the network's outputs; None for a plain Python value.
        value: The plain value, where it is one.
        dtype: Type of the tensor on the host.
    """

    position: int | None
    value: Any = None
    dtype: torch.dtype | None = None


@dataclass
class CapturedModel:
    """A model as a network.

    Attributes:
        net: The network; its loss is set if the model has one.
        outputs: Leaves of the result, in order.
        structure: How they are nested.
        weights: The host's tensor of every parameter and buffer, by name.
    """

    net: Network
    outputs: list[OutputLeaf]
    structure: Any
    weights: dict[str, torch.Tensor]

    def rebuild(self, tensors: list[torch.Tensor]) -> Any:
        """What the model returns, from the tensors of the network's outputs."""
        leaves = [leaf.value if leaf.position is None else tensors[leaf.position] for leaf in self.outputs]
        return torch_export.unflatten(leaves, self.structure)


def capture(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, training: bool
) -> CapturedModel:
    """Record one call of ``model`` as a network.

    Args:
        model: The model; it is run once, on tensors without data.
        args: Positional arguments of one micro-batch.
        kwargs: Keyword arguments.
        training: True if a loss is wanted.

    Raises:
        Error: No loss, or several, when training; Python code that depends on values.
        UnsupportedOpError: An operator without lowering; names the module and the user's line.
        TypeMismatchError: A tensor of a type that the device lacks.
    """
    losses = _ANY_LOSS if training else ()
    exported = torch_export.export(model, tuple(args), dict(kwargs or {}), training=training, losses=losses)
    reader = _ExportReader(exported, own_tensors(model))
    reader.read()
    if training:
        reader.find_loss()
    return reader.result()


def check_initialised(model: torch.nn.Module) -> None:
    """Raise if a lazy layer has not seen an input yet.

    Raises:
        Error: One has not; it is named.
    """
    lazy = [name for name, tensor in own_tensors(model).items() if torch.nn.parameter.is_lazy(tensor)]
    if lazy:
        raise Error(
            f"{lazy[0]!r} belongs to a lazy layer whose shape is not known yet",
            remedy="run the model once on the host before it is wrapped",
        )


def own_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a model by name, each under every name that it has."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return dict(named)


@dataclass
class _ExportReader:
    """Turns the nodes of one export into a network."""

    exported: torch_export.Exported
    tensors: Mapping[str, torch.Tensor]
    net: NetworkBuilder = field(default_factory=NetworkBuilder)
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)
    known: dict[torch.fx.Node, Any] = field(default_factory=dict)
    losses: list[torch.fx.Node] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    shared: dict[int, Value] = field(default_factory=dict)
    inputs: dict[str, Value] = field(default_factory=dict)
    missing: list[UnsupportedOpError] = field(default_factory=list)
    expanding: list[Any] = field(default_factory=list)

    def read(self) -> None:
        """Convert every entry and call.

        Raises:
            UnsupportedOpError: Some calls have no lowering; all of them are named.
        """
        for entry in self.exported.entries:
            self._enter(entry)
        try:
            for node in self.exported.calls:
                self._call(node)
        except AbeleError:
            if not self.missing:  # What stands in for a missing call may be refused by others.
                raise
        if self.missing:
            raise all_missing(self.missing)
        for result in self.exported.results:
            if result.role == "update":
                self.net.updates[self._weight_named(result.target)] = self._value(result.value)
            elif result.role == "input":
                self.net.changed_inputs[self.inputs[result.target]] = self._value(result.value)

    def _enter(self, entry: torch_export.GraphInput) -> None:
        node, tensor = entry.node, torch_export.fake(entry.node)
        if entry.role == "constant":
            self.known[node] = entry.tensor
        elif not isinstance(tensor, torch.Tensor):
            self.values[node] = tensor
        elif entry.role == "input":
            self.values[node] = self._input(node, tensor, entry.name)
        else:
            self.values[node] = self._weight(entry, tensor)

    def _input(self, node: torch.fx.Node, tensor: torch.Tensor, name: str) -> Value:
        value = self.net.input(tensor.shape, element_type(tensor.dtype), name)
        if tensor.dtype == torch.int64:
            self.net.wide.add(value)
        self.inputs[node.name] = value
        return value

    def _weight(self, entry: torch_export.GraphInput, tensor: torch.Tensor) -> Value:
        """The value of a parameter or buffer; tied ones are one value."""
        host = self.tensors.get(entry.name, entry.tensor)
        assert host is not None, f"{entry.name} has no tensor"
        if id(host) not in self.shared:
            make = self.net.parameter if entry.role == "parameter" else self.net.buffer
            self.shared[id(host)] = make(tensor.shape, element_type(tensor.dtype), entry.name)
            self.weights[entry.name] = host
        return self.shared[id(host)]

    def _weight_named(self, name: str) -> Value:
        return self.shared[id(self.tensors[name])]

    def _call(self, node: torch.fx.Node) -> None:
        sources = torch_export.iter_nodes(node)
        name = torch_export.op_name(node)
        if name == "getitem":
            source, index = node.args
            assert isinstance(source, torch.fx.Node)
            table = self.known if source in self.known else self.values
            table[node] = table[source][index]
            return
        if all(s in self.known for s in sources) and not torch_export.is_random(node) and name != IDENTITY_LOSS:
            self.known[node] = torch_export.run_on_host(node, *torch_export.map_args(self.known.__getitem__, node))
            return
        if name in _ANY_LOSS:
            self.losses.append(node)
        if handler_of(node) is not None:
            self._convert(node)
        elif node.target not in self.expanding and (made := decomposed(node)) is not None:
            self.expanding.append(node.target)
            self._expand(node, made)
            self.expanding.pop()
        else:
            self._miss(node, no_handler(node))

    def _convert(self, node: torch.fx.Node) -> None:
        try:
            self.values[node] = convert(self.net, node, *torch_export.map_args(self._value, node))
        except UnsupportedOpError as error:
            self._miss(node, error)

    def _expand(self, node: torch.fx.Node, made: torch.fx.GraphModule) -> None:
        """Convert what PyTorch makes of a call in its place."""
        losses, operands = len(self.losses), iter(operands_of(node))
        results: Any = None
        for inner in made.graph.nodes:
            self.values.pop(inner, None)
            self.known.pop(inner, None)
            if inner.op == "placeholder":
                source = next(operands)
                table = self.known if source in self.known else self.values
                table[inner] = table[source]
            elif inner.op == "get_attr":
                self.known[inner] = torch_export.attribute(made, inner)
            elif inner.op == "call_function":
                torch_export.inherit_origin(inner, node)
                self._call(inner)
            else:
                results = inner.args[0]
        if torch_export.op_name(node) in _ANY_LOSS:
            del self.losses[losses:]  # The call itself is the loss, not what it is made of.
        self.values[node] = torch_export.map_tree(self._value, results)

    def _miss(self, node: torch.fx.Node, error: UnsupportedOpError) -> None:
        """Remember a call that has no lowering, and go on with zeros in its place, to find the others as well."""
        self.missing.append(error)
        self.values[node] = torch_export.map_tensors(self._stand_in, torch_export.fake(node))

    def _stand_in(self, tensor: torch.Tensor) -> Value:
        dtype = f32 if tensor.is_complex() else element_type(tensor.dtype)
        return build.full(self.net, 0, tuple(tensor.shape), dtype)

    def _value(self, node: Any) -> Any:
        """What a node stands for in the network; tensors known at capture become constants."""
        if not isinstance(node, torch.fx.Node):
            return node
        if node not in self.values:
            tensor = self.known[node]
            assert isinstance(tensor, torch.Tensor)
            self.values[node] = self.net.constant(
                tensor.detach().float().numpy() if tensor.is_floating_point() else tensor.numpy(),
                element_type(tensor.dtype),
            )
        return self.values[node]

    def find_loss(self) -> None:
        """Set the network's loss: the one marked, or else the only one recognised.

        Raises:
            Error: There is none, or more than one.
        """
        marked = [n for n in self.losses if torch_export.op_name(n) == IDENTITY_LOSS]
        candidates = marked or self.losses
        if not candidates:
            raise Error(
                "Couldn't find a loss in graph",
                remedy="return a torch loss, or wrap the final value in poptorch.identity_loss",
            )
        if len(candidates) > 1:
            raise Error(
                "Multiple independent losses found in graph. Graph must have one final loss. "
                "Wrap final graph loss in poptorch.identity_loss.",
                because="\n".join(str(torch_export.origin(n)) for n in candidates),
            )
        self.net.loss = self._value(candidates[0])

    def result(self) -> CapturedModel:
        """The finished network."""
        leaves = []
        for result in self.exported.results:
            if result.role != "output":
                continue
            if not isinstance(result.value, torch.fx.Node):
                leaves.append(OutputLeaf(None, result.value))
                continue
            value = self._value(result.value)
            if not isinstance(value, Value):
                leaves.append(OutputLeaf(None, value))
                continue
            dtype = host_dtype(torch_export.fake(result.value).dtype)
            leaves.append(OutputLeaf(len(self.net.outputs), dtype=dtype))
            self.net.output(value)
        net = self.net.finish()
        verify(net)
        return CapturedModel(net, leaves, self.exported.structure, self.weights)
