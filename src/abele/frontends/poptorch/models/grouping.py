"""Values of their own on groups of replicas: parameters that a program groups, and buffers without broadcast.

Such a tensor has a row for each group along its first dimension; the model sees one row. A wrapped model offers
``replicaGrouping`` on each of its parameters, and what is chosen is kept on the parameter itself until the model is
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from abele.frontends.poptorch.capture.capture import own_tensors
from abele.frontends.poptorch.enums import CommGroupType, VariableRetrievalMode
from abele.frontends.poptorch.errors import Error, OptionValueError
from abele.frontends.poptorch.options import Options
from abele.network import Network
from abele.poplibs.gcl import CommGroup

_METHOD = "replicaGrouping"
COUNTS_APART = "counts_apart"
"""Attribute of modules with counters of each replica in their buffers; the host has those of the first."""


def groups_of_replicas(kind: CommGroupType, size: int) -> CommGroup:
    """Groups of ``size`` replicas, which matters where it is not all of them, or one."""
    match kind:
        case CommGroupType.Consecutive:
            return CommGroup.consecutive(size)
        case CommGroupType.Orthogonal:
            return CommGroup.orthogonal(size)
        case CommGroupType.NoGrouping:
            return CommGroup.none()
        case _:
            return CommGroup.all()


@dataclass
class ReplicaGrouping:
    """The method that groups a parameter, and the chosen grouping.

    Attributes:
        compiled: True if the model is compiled, and it is too late.
        kind: Grouping of replicas; None where nothing was chosen.
        shards: Replicas of a group.
        mode: Choice of the values that come back.
    """

    compiled: bool = False
    kind: CommGroupType | None = None
    shards: int = 1
    mode: VariableRetrievalMode = VariableRetrievalMode.OnePerGroup

    def __call__(
        self, comm_group_type: CommGroupType | int, shards: int, variable_retrieval_mode: VariableRetrievalMode | int
    ) -> None:
        """Let each group of replicas have values of its own.

        Args:
            comm_group_type: Grouping of replicas.
            shards: Replicas of a group, where they are consecutive or orthogonal; else nothing, and programs give 0.
            variable_retrieval_mode: Values of one replica of each group, or of all.

        Raises:
            OptionValueError: An argument of another type, or too few replicas.
            Error: The model is compiled already.
        """
        if self.compiled:
            raise Error(
                "replicaGrouping has to be called before the model is compiled",
                remedy="call destroy() first, and compile again with the next call",
            )
        try:
            kind, mode = CommGroupType(comm_group_type), VariableRetrievalMode(variable_retrieval_mode)
        except ValueError as error:
            raise OptionValueError(f"replicaGrouping: {error}") from error
        least = 1 if kind in (CommGroupType.Consecutive, CommGroupType.Orthogonal) else 0
        if isinstance(shards, bool) or not isinstance(shards, int) or shards < least:
            raise OptionValueError(f"replicaGrouping: shards must be a positive whole number, not {shards!r}")
        self.kind, self.shards, self.mode = kind, shards, mode


def offer(value: Any, *, compiled: bool) -> None:
    """Put the method on a parameter, or on those of a module; a tensor that has it keeps its choice."""
    parameters = value.parameters() if isinstance(value, torch.nn.Module) else [value]
    for parameter in parameters:
        if isinstance(parameter, torch.nn.Parameter):
            choice = parameter.__dict__.setdefault(_METHOD, ReplicaGrouping())
            choice.compiled = compiled


def own_groups(model: torch.nn.Module, options: Options) -> tuple[dict[str, CommGroup], tuple[str, ...]]:
    """The groups that have values of their own, by name of the parameter or buffer; names of those that come back from
    every replica.

    Buffers that are not broadcast, and have a row for each replica, are replicas' own. Those without rows begin alike
    on all, and the host has the first replica's; PyTorch's own layers, such as norms, have no rows.

    Raises:
        Error: A parameter without a row for each group.
        GraphReplicationError: Replicas that do not divide into groups.
    """
    replicas, found, every = options.replication_factor, dict[str, CommGroup](), list[str]()
    layers = {
        id(t)
        for module in model.modules()
        if type(module).__module__.startswith("torch.nn.")
        for t in module.buffers(recurse=False)
    }
    for name, tensor in own_tensors(model).items():
        choice = getattr(tensor, "__dict__", {}).get(_METHOD)
        if isinstance(choice, ReplicaGrouping) and choice.kind is not None:
            group = groups_of_replicas(choice.kind, choice.shards)
            groups = len(group.members(replicas))
            if groups == 1:
                continue
            rows = tensor.shape[0] if tensor.dim() else 0
            if choice.mode == VariableRetrievalMode.AllReplicas and groups < replicas:
                every.append(name)
            if rows != replicas or name not in every:
                _check_rows(name, rows, tensor, groups)
            found[name] = group
        elif options.broadcast_buffers or isinstance(tensor, torch.nn.Parameter) or id(tensor) in layers:
            continue
        elif tensor.dim() and tensor.shape[0] == replicas > 1:
            found[name] = CommGroup.none()
    return found, tuple(every)


def check_changed_buffers(model: torch.nn.Module, net: Network, options: Options, replicas: int) -> None:
    """Raise where replicas would change their copies of a buffer apart from each other, and the host has one value.

    Running statistics of norms and counters of experts are no such buffers: each replica keeps its own, and the host
    has those of the first.

    Args:
        model: The model, as it was recorded.
        net: Recorded network.
        options: Their ``broadcastBuffers``.
        replicas: Copies of the model, over all processes.

    Raises:
        Error: A buffer is changed; it is named.
    """
    if replicas == 1 or not options.broadcast_buffers:
        return
    apart = [m for m in model.modules() if isinstance(m, _NormBase) or getattr(m, COUNTS_APART, False)]
    exempt = {id(buffer) for module in apart for buffer in module.buffers(recurse=False)}
    own = own_tensors(model)
    for buffer in net.buffers:
        if buffer in net.updates and id(own.get(buffer.name)) not in exempt:
            made = next((op for op in net.ops if net.updates[buffer] in op.outputs), None)
            raise Error(
                "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming "
                "out of sync between replicas, you can disable buffer broadcasting using "
                "poptorch.Options.broadcastBuffers(False).",
                at=(made.debug.location if made else None) or None,
                because=f"forward changes the buffer {buffer.name!r}, and there are {replicas} replicas",
                remedy=f"broadcastBuffers(False), and a row for each replica: a first dimension of {replicas}",
            )


def _check_rows(name: str, rows: int, tensor: torch.Tensor, groups: int) -> None:
    """Raise unless a tensor has a row for each group."""
    if rows != groups:
        raise Error(
            f"{name!r} has shape {list(tensor.shape)}, and no row for each of the {groups} groups of replicas that are "
            "to have values of their own",
            remedy=f"a first dimension of {groups}; the model sees one row",
        )


@contextmanager
def one_row_each(
    model: torch.nn.Module, names: Iterable[str], row: Callable[[str, torch.Tensor], torch.Tensor]
) -> Iterator[dict[int, torch.Tensor]]:
    """``model`` with other tensors in the place of some, inside; the whole ones by ``id`` of what stands for them.

    Args:
        model: The model.
        names: Parameters and buffers.
        row: Function that gives a replica's view of a tensor, from its name and the detached tensor.
    """
    tensors = own_tensors(model)
    rows = {id(tensors[name]): _like(tensors[name], row(name, tensors[name].detach())) for name in names}
    tables: list[dict[str, Any]] = [
        table for module in model.modules() for table in (module._parameters, module._buffers)
    ]
    replaced = [(table, key, tensor) for table in tables for key, tensor in table.items() if id(tensor) in rows]
    for table, key, tensor in replaced:
        table[key] = rows[id(tensor)]
    try:
        yield {id(rows[id(tensor)]): tensor for _, _, tensor in replaced}
    finally:
        for table, key, tensor in replaced:
            table[key] = tensor


def _like(tensor: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(row, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else row


@contextmanager
def without_choices(model: torch.nn.Module) -> Iterator[None]:
    """``model`` without the method on its parameters inside, for files, which store the choices elsewhere."""
    held = {id(t): (t, t.__dict__.pop(_METHOD)) for t in own_tensors(model).values() if _METHOD in t.__dict__}
    try:
        yield
    finally:
        for tensor, choice in held.values():
            tensor.__dict__[_METHOD] = choice


def choices_of(model: torch.nn.Module) -> dict[str, tuple[int, int, int]]:
    """Chosen groupings as plain numbers, by name of the parameter."""
    chosen = {name: tensor.__dict__.get(_METHOD) for name, tensor in own_tensors(model).items()}
    return {name: (c.kind, c.shards, c.mode) for name, c in chosen.items() if c is not None and c.kind is not None}


def choose(model: torch.nn.Module, choices: Mapping[str, tuple[int, int, int]]) -> None:
    """Group the parameters of a copy of a model as :func:`choices_of` says that they were."""
    tensors = own_tensors(model)
    for name, choice in choices.items():
        grouping = tensors[name].__dict__[_METHOD] = ReplicaGrouping()
        grouping(*map(int, choice))
