"""Engines and executables by Poplar's constructors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from abele import graph as g
from abele import runtime
from abele.compiler import Executable, compile_program
from abele.errors import EngineError
from abele.machine import System, Target
from abele.poplar.device import Device
from abele.runtime.engine.options import read_options

Programs = g.Program | Sequence[g.Program] | Mapping[str, g.Program]
Progress = Callable[[int, int], None]
_STAGES = 100


class Engine(runtime.Engine):
    """A compiled program with its data.

    ``Engine(graph, programs[, options])``, ``Engine(executable[, options])`` and the older ``Engine(device, graph,
    programs[, options])`` are Poplar's forms; keyword arguments of :class:`abele.Engine` may follow.

    Raises:
        AbeleError: The program does not compile.
        InvalidOptionError: An unknown option.
        EngineError: The device is another machine than the graph was made for.
    """

    def __init__(self, *given: Any, progressCb: Progress | None = None, **keywords: Any) -> None:
        device = next((item for item in given if isinstance(item, Device)), None)
        rest = [item for item in given if item is not device]
        what, programs = _graph_and_programs(rest)
        options = next((item for item in rest if isinstance(item, Mapping)), keywords.pop("options", None))
        progressCb = next((item for item in rest if callable(item)), progressCb)  # noqa: N806
        if progressCb is not None:
            keywords["progress"] = _in_steps(progressCb)
        if device is not None and not isinstance(what, Executable):
            _check_device(what, device)
        super().__init__(what, programs, options=options, **keywords)

    def load(self, device: Device | None = None) -> None:
        """Bring everything to how it starts; ``device``, if given, must be what the graph was made for.

        Raises:
            EngineError: It is another machine.
        """
        if device is not None:
            _check_device(self.graph, device)
        super().load()

    def loadAndRun(self, *device_and_program: Any) -> bool:
        """Load, then run: ``loadAndRun(device[, program])``."""
        for item in device_and_program:
            if isinstance(item, Device):
                _check_device(self.graph, item)
        return super().loadAndRun(*device_and_program)

    def prepare(self, device: Device | None = None) -> None:
        """Make everything ready that :meth:`deploy` loads.

        Raises:
            EngineError: The device is another machine.
        """
        if device is not None:
            _check_device(self.graph, device)


def compileGraph(
    graph: g.Graph,
    progs: Programs,
    options: Mapping[str, Any] | None = None,
    progressCb: Progress | None = None,
    name: Any = "",
) -> Executable:
    """Compile programs without running them.

    Raises:
        AbeleError: A program does not compile.
        InvalidOptionError: An unknown option.
    """
    flags = read_options(options)
    return compile_program(
        graph,
        progs,
        allow_out_of_memory=flags.flag("debug.allowOutOfMemory"),
        progress=None if progressCb is None else _in_steps(progressCb),
    )


def _in_steps(callback: Progress) -> Callable[[str, float], None]:
    """Poplar's progress callback takes the step and the number of steps."""
    return lambda stage, part: callback(round(part * _STAGES), _STAGES)


def _graph_and_programs(rest: list[Any]) -> tuple[Any, Any]:
    """What an engine is made of, taken off its arguments: a graph and programs, or an executable."""
    if rest and isinstance(rest[0], Executable):
        return rest.pop(0), None
    if len(rest) < 2 or not isinstance(rest[0], g.Graph):
        given = ", ".join(type(item).__name__ for item in rest)
        raise EngineError(f"an Engine takes a graph and programs, or an executable, got ({given})")
    return rest.pop(0), rest.pop(0)


def _check_device(graph: g.Graph, device: Device) -> None:
    if not isinstance(device, Device):
        raise EngineError(
            f"{device!r} is no device", remedy="IPUModel().createDevice(), or a device of a DeviceManager"
        )
    wanted, given = graph.whole_system, device.system
    if _size(wanted) != _size(given):
        raise EngineError(
            f"the program was made for {_words(wanted)}, the device has {_words(given)}",
            remedy="make the graph for device.getTarget()",
        )


def _size(system: System) -> tuple[int, int, str]:
    return system.num_ipus, system.ipu.num_tiles, system.ipu.generation


def _words(system: System) -> str:
    target = Target(system)
    return f"{target.num_ipus} × {target.tiles_per_ipu} tiles of {system.ipu.name}"
