"""Capture: one call of a PyTorch model as a network, with its loss, its weights and the shape of its results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from abele.frontends.poptorch.capture import aten as _handlers
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.aten.losses import IDENTITY_LOSS, LOSSES
from abele.frontends.poptorch.capture.aten.normalisation import norms_over
from abele.frontends.poptorch.capture.block_places import BlockPlaces
from abele.frontends.poptorch.capture.reader import NodeReader
from abele.frontends.poptorch.capture.registry import all_missing, element_type, host_dtype
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.blocks import BlockRecord
from abele.frontends.poptorch.values import structures
from abele.network import Network, NetworkBuilder, Value, verify
from abele.network.ops import build

assert _handlers, "importing the package registers the handlers"


@dataclass(frozen=True)
class OutputLeaf:
    """One tensor of the model's result.

    Attributes:
        position: Its place among the network's outputs.
        dtype: Its type on the host.
    """

    position: int
    dtype: torch.dtype


@dataclass
class CapturedModel:
    """A model as a network.

    Attributes:
        net: The network; its loss is set if the model has one.
        outputs: Tensors of the result, in order.
        returned: The result, with empty tensors in place of its own.
        weights: The host's tensor of every parameter and buffer, by name.
    """

    net: Network
    outputs: list[OutputLeaf]
    returned: Any
    weights: dict[str, torch.Tensor]

    def rebuild(self, tensors: list[torch.Tensor]) -> Any:
        """Result of the model, from the tensors of the network's outputs."""
        entering = iter(tensors)
        return structures.map_tensors(lambda _: next(entering), self.returned)


def capture(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool,
    norm_replicas: int = 1,
    places: Callable[[BlockRecord], BlockPlaces] | None = None,
    changing: Collection[str] = (),
) -> CapturedModel:
    """Record one call of ``model`` as a network.

    Args:
        model: The model; it is run once, on tensors without data.
        args: Positional arguments of one micro-batch.
        kwargs: Keyword arguments.
        training: True if a loss is wanted.
        norm_replicas: Consecutive replicas over whose samples batch norms take their statistics in training.
        places: Says where the blocks that the model goes through run; without it they are in one place.
        changing: Names of buffers that others than the model change between calls.

    Raises:
        Error: No loss, or several, when training; Python code that depends on values.
        UnsupportedOpError: An operator without lowering; names the module and the user's line.
        TypeMismatchError: A tensor of a type that the device lacks.
    """
    losses = LOSSES if training else ()
    exported = torch_export.export(
        model, tuple(args), dict(kwargs or {}), training=training, losses=losses, changing=changing
    )
    at = BlockPlaces() if places is None else places(exported.blocks)
    if not at.blocks:
        _ = at.places  # Blocks that a strategy lists, and the model never begins.
    reader = _ModelReader(exported, own_tensors(model), at)
    with norms_over(norm_replicas):
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


def half_model(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a model in half precision.

    Raises:
        Error: It cannot be copied.
    """
    try:
        return copy.deepcopy(model).half()
    except Exception as error:  # Whatever the owner's own classes raise.
        raise Error(f"the model cannot be copied: {error}") from error


def half_arguments(arguments: Any) -> Any:
    """Arguments whose tensors of floats are in half precision."""
    return structures.map_tensors(lambda t: t.half() if t.is_floating_point() else t, arguments)


def own_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a model by name, each under every name that it has."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return dict(named)


@dataclass
class _ModelReader:
    """Turns one export into a network: what enters and leaves, and the loss; a :class:`NodeReader` does the calls."""

    exported: torch_export.Exported
    tensors: Mapping[str, torch.Tensor]
    places: BlockPlaces
    net: NetworkBuilder = field(default_factory=NetworkBuilder)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    shared: dict[int, Value] = field(default_factory=dict)
    inputs: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = NodeReader(self.net, places=self.places)

    def read(self) -> None:
        """Convert every entry and call.

        Raises:
            UnsupportedOpError: Some calls have no lowering; all of them are named.
        """
        for entry in self.exported.entries:
            self._enter(entry)
        try:
            self.nodes.read(self.exported.nodes)
        except Exception:
            if not self.nodes.missing:  # What stands in for a missing call may be refused by others.
                raise
        if self.nodes.missing:
            raise all_missing(self.nodes.missing)
        for result in self.exported.results:
            if result.role == "update":
                self._update(self._weight_named(result.target), self.net.updates, result)
            elif result.role == "input":
                self._update(self.inputs[result.target], self.net.changed_inputs, result)

    def _update(self, state: Value, table: dict[Value, Value], result: torch_export.GraphOutput) -> None:
        # Code that takes away or adds dims in place changes no elements.
        value = self.nodes.tensor(result.value)
        with self.net.at(place=value.place):
            table[state] = build.cast(self.net, build.reshape(self.net, value, state.shape), state.dtype)

    def _enter(self, entry: torch_export.GraphInput) -> None:
        node, tensor = entry.node, torch_export.fake(entry.node)
        if entry.role == "constant":
            self.nodes.known[node] = entry.tensor
        elif not isinstance(tensor, torch.Tensor):
            self.nodes.values[node] = tensor
        elif entry.role == "input":
            self.nodes.values[node] = self._input(tensor, entry.name)
        else:
            self.nodes.values[node] = self._weight(entry, tensor)

    def _input(self, tensor: torch.Tensor, name: str) -> Value:
        value = self.net.input(tensor.shape, element_type(tensor.dtype), name)
        if tensor.dtype == torch.int64:
            self.net.wide.add(value)
        self.inputs[name] = value
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

    def find_loss(self) -> None:
        """Set the network's loss to the only one that no other depends on; marked losses go before recognised ones.

        Raises:
            Error: There is none, or more than one.
        """
        final = _final(self.nodes.losses)
        marked = [n for n in final if torch_export.op_name(n) == IDENTITY_LOSS]
        candidates = marked or final
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
        self.net.loss = self.nodes.tensor(candidates[0])

    def result(self) -> CapturedModel:
        """The finished network."""
        leaves = []
        for result in self.exported.results:
            if result.role != "output":
                continue
            value = self.nodes.tensor(result.value)
            if 0 in value.shape:
                raise Error(
                    f"Zero-sized tensors are unsupported (Got shape {list(value.shape)}).",
                    at=torch_export.origin(result.value).location or None,
                    because="the model returns it",
                )
            dtype = host_dtype(torch_export.fake(result.value).dtype)
            leaves.append(OutputLeaf(len(self.net.outputs), dtype=dtype))
            self.net.output(value)
        net = self.net.finish()
        verify(net)
        return CapturedModel(net, leaves, self.exported.returned, self.weights)


def _final(losses: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """Those of some calls that none of the others depends on."""
    found, passed = list(losses), set[torch.fx.Node]()
    for loss in losses:
        behind = list(loss.all_input_nodes)
        while behind:
            node = behind.pop()
            if node not in passed:
                passed.add(node)
                behind += node.all_input_nodes
    return [n for n in found if n not in passed]
