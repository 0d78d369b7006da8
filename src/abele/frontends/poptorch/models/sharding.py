"""Models that groups of replicas compute together: which weights are cut, and what a schedule has to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import torch

from abele.frontends.poptorch.capture.capture import own_tensors
from abele.frontends.poptorch.capture.patches import patched
from abele.frontends.poptorch.enums import CommGroupType
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.functions.split_layers import SplitLayer
from abele.frontends.poptorch.functions.tensor_parallel import DIVIDED
from abele.frontends.poptorch.models.grouping import one_row_each, own_groups
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.network import Split
from abele.network.schedule import EACH_ITS_OWN
from abele.poplibs.gcl import CommGroup
from abele.session import Schedule


@dataclass(frozen=True)
class OwnValues:
    """Weights of which replicas have values of their own.

    Attributes:
        groups: Groups that have a row of a tensor each, by its name.
        every_replica: Those of which the host gets a row for each replica.
        group_size: Consecutive replicas that compute the model together.
        expert_group: Consecutive replicas, each with inputs of its own, that share weights such as those of experts.
        splits: Splits of tensors into their parts, by name.
        divided: Attributes of modules that are divided among them.
    """

    groups: Mapping[str, CommGroup] = field(default_factory=dict)
    every_replica: tuple[str, ...] = ()
    group_size: int = 1
    expert_group: int = 1
    splits: Mapping[str, Split] = field(default_factory=dict)
    divided: tuple[tuple[torch.nn.Module, dict[str, int]], ...] = ()

    @classmethod
    def of(cls, model: torch.nn.Module, options: Options) -> OwnValues:
        """Values of their own by a model and its options.

        Raises:
            Error: Layers that are split in different ways; options under which replicas of a group do something else.
        """
        groups, every = own_groups(model, options)
        layers = [(name, m) for name, m in model.named_modules() if isinstance(m, SplitLayer)]
        divided = [(m, m.__dict__[DIVIDED]) for m in model.modules() if m.__dict__.get(DIVIDED)]
        sizes = {m.group_size for _, m in layers if not m.inputs_differ}
        size = _only_size(sizes | {n for _, table in divided for n in table.values()})
        experts = _only_size({m.group_size for _, m in layers if m.inputs_differ})
        if size == experts == 1:
            return cls(groups, every)
        if size > 1 < experts:
            raise Error(
                f"experts are shared by {experts} replicas with inputs of their own, and {size} replicas compute the "
                "model together, with the same inputs",
                remedy="experts with group_size=1, or no layers that parallelize_module splits",
            )
        _check_options(options, size, experts)
        splits = _splits((name, m) for name, m in layers if m.group_size > 1)
        named = {name: splits[id(t)] for name, t in own_tensors(model).items() if id(t) in splits}
        both = [name for name in named if name in groups]
        if both:
            raise Error(f"{both[0]!r} is split by its layer, and grouped by replicaGrouping", remedy="one of both")
        return cls(groups, every, size, experts, named, tuple(divided))

    def added_to(self, schedule: Schedule, names: Iterable[str]) -> Schedule:
        """A schedule that knows the values of their own of the weights of these names."""
        known = list(names)
        schedule = replace(schedule, every_replica=tuple(name for name in known if name in self.every_replica))
        size = max(self.group_size, self.expert_group)
        if size == 1:
            return replace(
                schedule, own_values=tuple((name, self.groups[name]) for name in known if name in self.groups)
            )
        across = CommGroup.orthogonal(schedule.replicas // size)
        every = {**self.groups, **dict.fromkeys(self.splits, across)}
        return replace(
            schedule,
            own_values=tuple((name, every[name]) for name in known if name in every),
            tensor_parallel=CommGroup.consecutive(self.group_size) if self.group_size > 1 else EACH_ITS_OWN,
            expert_parallel=CommGroup.consecutive(self.expert_group) if self.expert_group > 1 else EACH_ITS_OWN,
            splits=tuple((name, self.splits[name]) for name in known if name in self.splits),
        )

    def spread(self, weights: Mapping[str, torch.Tensor], replicas: int) -> None:
        """Give tensors read from every replica a row per replica, each the row of the replica's group."""
        for name in self.every_replica:
            tensor = weights.get(name)
            if tensor is not None and tensor.shape[0] != replicas:
                members = self.groups[name].members(replicas)
                row_of = torch.from_numpy(members.ravel().argsort() // members.shape[1])
                with torch._C.DisableTorchFunctionSubclass():
                    tensor.data = tensor.detach()[row_of]

    @contextmanager
    def one_each(self, model: torch.nn.Module) -> Iterator[dict[int, torch.Tensor]]:
        """``model`` as a replica sees it, inside: with its rows and parts; whole tensors by ``id`` of those."""

        def row(name: str, tensor: torch.Tensor) -> torch.Tensor:
            if name not in self.splits:
                return tensor[0].clone()
            return from_array(
                self.splits[name].cut(to_array(tensor), max(self.group_size, self.expert_group))[0].copy()
            )

        with ExitStack() as stack:
            for module, table in self.divided:
                stack.enter_context(patched(module, **{name: getattr(module, name) // n for name, n in table.items()}))
            yield stack.enter_context(one_row_each(model, [*self.groups, *self.splits], row))


def _only_size(sizes: set[int]) -> int:
    """The only size of groups, 1 for none.

    Raises:
        Error: There are several.
    """
    if len(sizes) > 1:
        raise Error(f"layers of one model are split over groups of {', '.join(map(str, sorted(sizes)))} replicas")
    return max(sizes, default=1)


def _check_options(options: Options, size: int, experts: int) -> None:
    """Raise unless groups of ``size`` consecutive replicas are given the same inputs, or those of ``experts`` fit."""
    replicas = options.replication_factor
    if experts > 1 and replicas % experts:
        raise Error(
            f"experts are shared by {experts} replicas, and there are {replicas}",
            remedy=f"options.replicationFactor({max(experts, replicas - replicas % experts)})",
        )
    same = (options.input_group_size, options.input_cgt) == (size, CommGroupType.Consecutive)
    if size > 1 and (replicas % size or not same):
        given = f"groups of {options.input_group_size}" if options.input_group_size > 1 else "each its own"
        raise Error(
            f"the model is split over groups of {size} consecutive replicas, and the options say otherwise",
            because=f"there are {replicas} replicas, which are given inputs by {given}"
            if options.input_group_size > 1
            else f"there are {replicas} replicas, which are given inputs {given}",
            remedy=f"options.replicationFactor({max(size, replicas - replicas % size)}).inputReplicaGrouping({size}, "
            "poptorch.CommGroupType.Consecutive)",
        )


def _splits(layers: Iterable[tuple[str, SplitLayer]]) -> dict[int, Split]:
    """Split of each parameter, by ``id``.

    Raises:
        Error: Two layers share one that they cut differently.
    """
    found: dict[int, tuple[str, Split]] = {}
    for path, layer in layers:
        for name, dim, blocks in layer.parts():
            tensor = getattr(layer, name)
            split = Split(dim, tensor.shape[dim], blocks)
            first, other = found.setdefault(id(tensor), (f"{path}.{name}", split))
            if other != split:
                raise Error(
                    f"{first!r} and {f'{path}.{name}'!r} are one parameter, which both layers cut differently",
                    remedy="split tied layers along the same dimension, such as by 'vocabulary' both",
                )
    return {key: split for key, (_, split) in found.items()}
