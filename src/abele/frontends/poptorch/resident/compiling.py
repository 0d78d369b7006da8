"""Compiling programs: each module captured, all of them joined; and calls, from tensors to the session and back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from abele.arrays import Array
from abele.compiler.compile import collector_paused
from abele.errors import AbeleError, nearest
from abele.frontends.poptorch.capture import CapturedModel, capture
from abele.frontends.poptorch.capture.capture import check_initialised, own_tensors
from abele.frontends.poptorch.capture.source_lines import origins
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.fp8.chips import check_products
from abele.frontends.poptorch.models.batching import Batching
from abele.frontends.poptorch.models.compiling import Placing, words
from abele.frontends.poptorch.models.grouping import check_changed_buffers
from abele.frontends.poptorch.models.sharding import OwnValues
from abele.frontends.poptorch.models.user_models import as_plain
from abele.frontends.poptorch.models.weights import plain
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.popart import validate_options
from abele.frontends.poptorch.program.recording import COMPILING, recording
from abele.frontends.poptorch.resident.loop import Loop
from abele.frontends.poptorch.resident.state import ResidentCell
from abele.frontends.poptorch.values import structures
from abele.frontends.poptorch.values.signature import ForwardSignature
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.network import Network, Split
from abele.network.passes import Outline
from abele.network.programs import check_program, joined_programs, looped
from abele.poplibs.gcl import CommGroup
from abele.session import Schedule, Session, SharedArrays, compile_network
from abele.session.compiling import compilation_progress
from abele.session.feeds import host_shape


@dataclass
class ResidentModule:
    """One of several programs.

    Attributes:
        name: Its name.
        module: The module, one trip of a loop.
        loop: The loop, if it is one.
        args: Arguments of the example.
        kwargs: Its keyword arguments.
    """

    name: str
    module: torch.nn.Module
    loop: Loop | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    signature: ForwardSignature = field(init=False)

    def __post_init__(self) -> None:
        self.signature = ForwardSignature(self.module.forward)
        if self.count and self.count in self.signature.signature.parameters:
            raise Error(
                f"forward of the program {self.name!r} has an argument {self.count!r} itself",
                remedy="another name for the number of trips: Loop(module, most='count')",
            )

    @property
    def count(self) -> str:
        """Name of the argument that says how many trips there are at most; empty without one."""
        return self.loop.most if self.loop is not None and isinstance(self.loop.most, str) else ""

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers of the module, by name."""
        return own_tensors(self.module)

    def alive(self, captured: CapturedModel) -> str:
        """The network's name of the buffer by which a loop goes on; empty if it counts alone.

        Raises:
            Error: The module has no such buffer, or neither reads nor changes it.
        """
        name = self.loop.while_ if self.loop is not None else ""
        if not name:
            return ""
        tensor, close = self.tensors.get(name), nearest(name, self.tensors)
        found = next((n for n, t in captured.weights.items() if t is tensor), None)
        if found is not None:
            return found
        if tensor is not None:
            raise Error(
                f"the loop goes on while {name!r} is true, which its module neither reads nor changes",
                remedy="change it in forward: self.alive.copy_(…)",
            )
        raise Error(
            f"the module has no buffer {name!r}, by which the loop goes on",
            because=f"its parameters and buffers are {', '.join(self.tensors) or 'none at all'}",
            remedy=f"register_buffer({name!r}, …)" if close is None else f"did you mean {close!r}?",
        )


@dataclass(frozen=True)
class _ResidentCall:
    """Inputs and outputs of calls of one program.

    Attributes:
        captured: The module's network, and how its results are nested.
        blank: An array for each input of the executable, for those that the call does not give.
        inputs: Positions of the program's inputs.
        outputs: Positions of its outputs.
        shapes: Shapes and types of its tensors where all are arguments of their own, in order; None where they are
            nested.
    """

    captured: CapturedModel
    blank: list[Array]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: list[tuple[torch.Size, torch.dtype]] | None


@dataclass
class CompiledPrograms:
    """ResidentPrograms that are ready to run.

    Attributes:
        session: The compiled network with the modules' tensors.
        calls: Inputs and outputs of each program's calls, by name.
    """

    session: Session
    calls: dict[str, _ResidentCall]

    def run(self, member: ResidentModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one program on the arguments of a call.

        Raises:
            Error: They differ from the example.
        """
        call, sent = self.calls[member.name], []
        if member.count:
            kwargs = dict(kwargs)
            sent.append(self._count(member, kwargs.pop(member.count, None)))
        fit = call.shapes is not None and not kwargs and len(args) == len(call.shapes)
        if fit and all(
            type(t) is torch.Tensor and t.shape == shape and t.dtype == dtype and not t.requires_grad
            for t, (shape, dtype) in zip(args, call.shapes or (), strict=True)
        ):
            tensors: Sequence[torch.Tensor] = args
        else:
            with _of(member.name):
                tensors = member.signature.match(*member.signature.bind(args, kwargs))
        inputs = list(call.blank)
        for position, array in zip(call.inputs, [*(to_array(t) for t in tensors), *sent], strict=True):
            inputs[position] = array
        outputs = self.session.run(inputs).outputs
        return call.captured.rebuild([from_array(outputs[n]) for n in call.outputs])

    def _count(self, member: ResidentModule, given: Any) -> Array:
        """The number of trips of a call, for each replica.

        Raises:
            Error: None is given, or something else than a whole number.
        """
        if isinstance(given, torch.Tensor) and given.numel() == 1 and not given.is_floating_point():
            given = int(given)
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or not 0 <= given < 1 << 31:
            raise Error(
                f"{member.count} of the program {member.name!r} is {given!r}, not a number of trips"
                if given is not None
                else f"the program {member.name!r} was not told how many trips there are at most",
                remedy=f"run({member.name!r}, …, {member.count}=32)",
            )
        return np.full(host_shape((), self.session.schedule), given, np.int32)


@collector_paused()
def compile_programs(
    members: Mapping[str, ResidentModule], options: Options, name_of: Callable[[str], str]
) -> CompiledPrograms:
    """Capture, join and compile programs; nothing runs.

    Args:
        members: The programs, by name.
        options: Options of the executable.
        name_of: Gives the one name of a tensor that a module of a program calls ``program.name``.

    Raises:
        AbeleError: See :func:`~abele.frontends.poptorch.capture.capture` and
            :func:`~abele.session.compile_network`.
    """
    validate_options(options.toDict(), options.known_names)
    batching = Batching(options, training=False)
    schedule = batching.schedule()
    settings = options.settings("_".join(members))
    with compilation_progress(settings.progress) as progress:
        progress("capture", 0.0)
        captured, placings, owns = dict[str, CapturedModel](), list[Placing](), dict[str, OwnValues]()
        for name, member in members.items():
            placings.append(Placing(options, training=False))
            with _of(name):
                owns[name] = OwnValues.of(member.module, options)
                captured[name] = _captured(member, batching, placings[-1], owns[name])
                check_changed_buffers(member.module, captured[name].net, options, schedule.replicas)
        several = schedule.replicas > 1
        # Equal layers become calls here: later passes look for them at the top alone, where joined programs have none.
        captured = {name: replace(c, net=Outline(scope=name).run(c.net)) for name, c in captured.items()}
        nets = {name: _network(members[name], found, several=several) for name, found in captured.items()}
        # Loops lay out what they share with others.
        order = sorted(nets, key=lambda name: members[name].loop is None)
        names = {n: {own: name_of(f"{n}.{own}") for own in found.weights} for n, found in captured.items()}
        joined = joined_programs({name: nets[name] for name in order}, names, replicas=several)
        largest = max(placings, key=lambda placing: placing.num_ipus)
        settings = largest.settings(settings)
        check_products(joined.network, settings.target())
        with largest.explaining():
            compiled = compile_network(
                joined.network,
                _with_own_values(schedule, owns, names),
                settings=settings,
                words=functools.partial(words, training=False),
                progress=progress,
            )
    for name, own_values in owns.items():
        own_values.spread(captured[name].weights, schedule.replicas)
    held = {names[n][own]: tensor for n, found in captured.items() for own, tensor in found.weights.items()}
    cells = SharedArrays({name: ResidentCell(tensor) for name, tensor in held.items()})
    blank = [np.zeros(host_shape(v.shape, schedule), v.dtype.np) for v in joined.network.inputs]
    calls = {
        name: _ResidentCall(
            found,
            [np.full_like(blank[0], joined.numbers[name]), *blank[1:]],
            joined.inputs[name],
            joined.outputs[name],
            _plain_shapes(members[name]),
        )
        for name, found in captured.items()
    }
    return CompiledPrograms(Session(compiled, weights=cells, follow_host=False), calls)


def _network(member: ResidentModule, captured: CapturedModel, *, several: bool) -> Network:
    with _of(member.name):
        if member.loop is None:
            check_program("forward", captured.net)
            return captured.net
        return looped(captured.net, member.loop.most, member.alive(captured), replicas=several)


@contextlib.contextmanager
def _of(name: str) -> Iterator[None]:
    """Errors that are raised inside name the program."""
    try:
        yield
    except AbeleError as error:
        error.at = f"the program {name!r}" + (f", {error.at}" if error.at else "")
        raise


def _with_own_values(
    schedule: Schedule, owns: Mapping[str, OwnValues], names: Mapping[str, Mapping[str, str]]
) -> Schedule:
    """The schedule with the values that replicas have of their own, under the one name of each tensor."""
    found, values, every, splits = schedule, dict[str, CommGroup](), dict[str, None](), dict[str, Split]()
    for program, own in owns.items():
        called, one = names[program], own.added_to(schedule, names[program])
        values |= {called[name]: group for name, group in one.own_values}
        every |= dict.fromkeys(called[name] for name in one.every_replica)
        splits |= {called[name]: split for name, split in one.splits}
        if one.splits:
            found = one
    return replace(found, own_values=tuple(values.items()), every_replica=tuple(every), splits=tuple(splits.items()))


def _captured(member: ResidentModule, batching: Batching, placing: Placing, own: OwnValues) -> CapturedModel:
    """The network of one module."""
    module, options = member.module, batching.options
    check_initialised(module)
    args, kwargs = member.signature.bind(member.args, member.kwargs)
    member.signature.record(args, kwargs)
    args, kwargs = structures.map_tensors(batching.micro_batch, (args, kwargs))
    excludes, named = options.source_location_excludes, options.module_namescope_enabled
    with (
        COMPILING.held(),
        as_plain(module),
        plain(own_tensors(module).values()),
        own.one_each(module) as whole,
        _evaluating(module),
        origins(excludes, modules=named),
        recording(),
    ):
        # Programs and the host change buffers between calls: none has a value that the capture may build on.
        buffers = [name for name, _ in module.named_buffers(remove_duplicate=False)]
        found = capture(module, args, kwargs, training=False, places=placing.places, changing=buffers)
    return replace(found, weights={name: whole.get(id(t), t) for name, t in found.weights.items()})


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    modes = [(inner, inner.training) for inner in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for inner, mode in modes:
            inner.training = mode


def _plain_shapes(member: ResidentModule) -> list[tuple[torch.Size, torch.dtype]] | None:
    args, kwargs = member.signature.bind(member.args, member.kwargs)
    if kwargs or not all(isinstance(a, torch.Tensor) for a in args):
        return None
    return [(a.shape, a.dtype) for a in args]
