"""Recording exponents of tensors while a session runs.

Tensors are looked at after a run, where they lie in the memory of the host: the modelled machine knows nothing of it,
so that reports say what they would say without. What only fused kernels touch is kept for it, which takes the host some
memory and time. Activations and gradients are those of the last micro-batch of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import SessionError, UnknownArrayError, nearest
from abele.graph import Copy, LibraryCall, Program, Stream, Tensor, Variable
from abele.network.schedule import GRADIENT, UPDATED
from abele.numerics.exponents import HIGHEST_OCTAVE, LOWEST_OCTAVE, count_exponents
from abele.report import Report
from abele.report.exponents import ExponentRecord, exponent_tables
from abele.session.compiled import Compiled
from abele.session.host_interface import End
from abele.trace import Channel
from abele.trace.channel import Heatmap

if TYPE_CHECKING:
    from abele.runtime import Engine
    from abele.session.device_arrays import DeviceArrays

GROUPS = {
    "weights": ("weight",),
    "gradients": ("gradient",),
    "activations": ("activation",),
    "activation_gradients": ("activation gradient",),
    "all": ("weight", "gradient", "activation", "activation gradient"),
}
"""Words that stand for all tensors of some roles."""

_CHANNEL = Channel("abele.exponents")
_EDGES = np.arange(LOWEST_OCTAVE, HIGHEST_OCTAVE + 2)
_RESULT, _BACKWARD, _OF_UPDATES = "/out", "/grad/", ("update/", "optimiser")


@dataclass(frozen=True)
class RecordedTensor:
    """A tensor whose exponents can be counted.

    Attributes:
        name: Its name.
        role: One of ``abele.report.schema.ROLES``.
        type: Its element type.
        handle: Handle of the tensor on the device.
    """

    name: str
    role: str
    type: str
    handle: End | Tensor

    def read(self, engine: Engine, arrays: DeviceArrays) -> npt.NDArray[Any]:
        """Values that it holds now, on all replicas."""
        return arrays.read(self.handle) if isinstance(self.handle, End) else engine.read(self.handle)


def tensors_of(compiled: Compiled) -> dict[str, RecordedTensor]:
    """The tensors of floats of a compiled network, by name: weights, gradients and variables on the device."""
    graph = compiled.executable.graph
    found: dict[str, RecordedTensor] = {}

    def add(name: str, role: str, handle: End | Tensor) -> None:
        if handle.dtype.is_float:
            found.setdefault(name, RecordedTensor(name, role, handle.dtype.name, handle))

    for name, end in compiled.ends.weights.items():
        add(name, "weight", end)
    gradients: set[int] = set()
    for name, tensor in compiled.ends.gradients.items():
        add(GRADIENT + name, "gradient", tensor)
        gradients.update(id(v) for v in tensor.variables)
    inputs = {end.name for end in compiled.ends.inputs}
    for variable in _results(compiled.executable.programs):
        if variable.initial is None and id(variable) not in gradients:
            role = "input" if variable.name in inputs else _role(variable.name)
            add(variable.name, role, graph.whole(variable))
    return found


def _results(programs: Iterable[Program]) -> Iterator[Variable]:
    """Variables that library calls give, and streams fill.

    What is inside of library calls is not among them: host kernels carry calls out without it.
    """
    seen: set[int] = set()
    waiting = list(programs)
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        views: tuple[object, ...] = ()
        if isinstance(node, LibraryCall):
            views = node.outputs
        elif isinstance(node, Copy):
            # Copies of tensors, as into the arguments of functions, are of what is known already.
            views = (node.destination,) if isinstance(node.source, Stream) else ()
        else:
            waiting.extend(reversed(node.children()))
        for view in views:
            if isinstance(view, Tensor):
                yield from view.variables


def _role(name: str) -> str:
    """Role of a variable, by its name."""
    if not name.endswith(_RESULT) or name.startswith(_OF_UPDATES):
        return "other"
    return "activation gradient" if _BACKWARD in name else "activation"


class ExponentRecorder:
    """Counts exponents of chosen tensors after runs.

    Args:
        compiled: Program that runs.
        wanted: Names, patterns of names with ``*`` and ``?``, or words of :data:`GROUPS`.
        every: Steps (weight updates, or batches of inference) from one record to the next.

    Raises:
        UnknownArrayError: A name or pattern that no tensor of floats has.
        SessionError: Gradients of a program from a file, which does not know their names.
    """

    def __init__(self, compiled: Compiled, wanted: Iterable[str], every: int) -> None:
        self._every = every
        self._steps = 0
        self._per_run = compiled.schedule.device_iterations
        self._records: list[ExponentRecord] = []
        self._tensors = list(_chosen(compiled, tuple(wanted)))
        self._maps = {t.name: _heatmap(t) for t in self._tensors}

    @property
    def tensors(self) -> tuple[RecordedTensor, ...]:
        """The tensors that are looked at."""
        return tuple(self._tensors)

    @property
    def keep(self) -> list[Tensor]:
        """Tensors that an engine must keep in memory."""
        return [t.handle for t in self._tensors if isinstance(t.handle, Tensor)]

    def note_run(self, engine: Engine, arrays: DeviceArrays) -> None:
        """Count after a run, if a step to be recorded was in it."""
        before, self._steps = self._steps, self._steps + self._per_run
        if before // self._every == self._steps // self._every:
            return
        for tensor in self._tensors:
            counts = count_exponents(tensor.read(engine, arrays))
            self._records.append(ExponentRecord(self._steps, tensor.name, tensor.role, tensor.type, counts))
            if _CHANNEL.is_on:
                self._maps[tensor.name].add_counts(counts.octaves)

    def added_to(self, report: Report) -> Report:
        """A report with the exponents recorded so far."""
        records, counts = exponent_tables(self._records)
        return replace(report, exponent_records=records, exponent_counts=counts)


def _heatmap(tensor: RecordedTensor) -> Heatmap:
    return _CHANNEL.heatmap(f"exponents of {tensor.name}", _EDGES, "octave")


def _chosen(compiled: Compiled, wanted: tuple[str, ...]) -> Iterator[RecordedTensor]:
    """The tensors that names, patterns and words mean, each once."""
    known = tensors_of(compiled)
    given = dict.fromkeys(wanted)
    seen: set[str] = set()
    for word in given:
        names = [n for n, t in known.items() if t.role in GROUPS[word]] if word in GROUPS else _matching(word, known)
        if not names:
            raise _unknown(compiled, word, known)
        yield from (known[name] for name in names if name not in seen)
        seen.update(names)


def _matching(word: str, known: Iterable[str]) -> list[str]:
    names = list(known)
    # After an update, parameters are what updates have made of them.
    word = word.removeprefix(UPDATED)
    return [word] if word in names else [name for name in names if fnmatchcase(name, word)]


def _unknown(compiled: Compiled, word: str, known: dict[str, RecordedTensor]) -> Exception:
    of_gradients = word == "gradients" or word.startswith(GRADIENT)
    if of_gradients and compiled.training and not compiled.ends.gradients:
        return SessionError(
            f"exponents of {word!r} cannot be recorded",
            because="the program comes from a file, which does not say which tensors are gradients",
            remedy="compile without a cache, or name variables of the device",
        )
    close = nearest(word, [*GROUPS, *known])
    return UnknownArrayError(
        f"exponents of {word!r} cannot be recorded: no tensor of floats is called so",
        because=None if compiled.training else "a program for inference has no gradients" if of_gradients else None,
        remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(GROUPS) + ", or a pattern with *",
    )
