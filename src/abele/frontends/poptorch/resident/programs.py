"""``programs``: modules over common parameters and buffers as one executable, of which each call runs one."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch

from abele.compiler import Executable
from abele.errors import nearest
from abele.frontends.poptorch.errors import ArgumentError, Error, as_poptorch_errors
from abele.frontends.poptorch.models.executor import PoplarExecutor, mark_results
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.environment import tell_of_waiting
from abele.frontends.poptorch.resident.compiling import CompiledPrograms, ResidentModule, compile_programs
from abele.frontends.poptorch.resident.loop import Loop
from abele.frontends.poptorch.resident.state import ProgramState
from abele.report import Report
from abele.session import Session
from abele.session.array_sync import ForkLock

Example = tuple[Any, ...] | Mapping[str, Any] | torch.Tensor


def programs(
    modules: Mapping[str, torch.nn.Module | Loop],
    options: Options | None = None,
    *,
    examples: Mapping[str, Example] | None = None,
) -> ResidentPrograms:
    """Modules over common parameters and buffers as one executable; nothing is compiled yet.

    Tensors that several modules have (the same objects) are one state, which stays on the device between calls and is
    changed in place.

    Args:
        modules: For each program its module, or a :class:`Loop` of one. Put what runs most first among the loops, and
            among the modules: state lies as the first program wants it, and loops go before others.
        options: Options of the executable; a call is one micro-batch per replica.
        examples: For each program whose ``forward`` takes arguments a tuple of them, or a mapping by name.

    Raises:
        Error: No modules; a wrapped model; options that ask for several iterations.
        ArgumentError: Something else than a module.
    """
    return ResidentPrograms(modules, Options() if options is None else options, examples or {})


class ResidentPrograms:
    """ResidentPrograms over one state, see :func:`programs`; each is called by its name.

    Attributes:
        state: Parameters and buffers by name.
    """

    def __init__(
        self, modules: Mapping[str, torch.nn.Module | Loop], options: Options, examples: Mapping[str, Example]
    ) -> None:
        if not modules:
            raise Error("there are no programs", remedy='poptorch.programs({"decode": module}, examples={…})')
        options._freeze()
        self._options = options.clone()
        if self._options.device_iterations != 1:
            raise Error(
                f"programs run once a call, and deviceIterations is {self._options.device_iterations}",
                remedy="poptorch.Loop(module, most=…) for several trips on the device",
            )
        unknown = [name for name in examples if name not in modules]
        if unknown:
            close = nearest(unknown[0], modules)
            raise Error(
                f"there is an example for {unknown[0]!r}, which is no program",
                because=f"there are {', '.join(modules)}",
                remedy=f"did you mean {close!r}?" if close else None,
            )
        self._members = {name: _member(name, module, examples.get(name, ())) for name, module in modules.items()}
        self._compiled: CompiledPrograms | None = None
        self._lock = ForkLock()
        self.state: ProgramState = ProgramState(*_named(self._members), self._on_device)

    # --- calling -----------------------------------------------------------------------------------------------------

    def run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Run one program; returns what its ``forward`` does.

        Raises:
            Error: No program of this name; arguments that differ from the example.
            TensorIndexError: An index outside its bounds.
            ElementRangeError: An int64 that does not fit in the 32 bits of the device.
        """
        with as_poptorch_errors(), self._lock.held():
            member = self._members.get(name)
            if member is None:
                raise self._unknown(name)
            compiled = self._compiled or self._compile()
            if not compiled.session.attached:
                self._attach(compiled)
            return mark_results(compiled.run(member, args, kwargs))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        members = self.__dict__.get("_members", {})
        if name in members:
            return functools.partial(self.run, name)
        close = nearest(name, members)
        hint = f"; did you mean {close!r}?" if close else ""
        raise AttributeError(f"there is no program {name!r}, but {', '.join(members)}{hint}", name=name, obj=self)

    def __dir__(self) -> Sequence[str]:
        return [*super().__dir__(), *self._members]

    def _unknown(self, name: object) -> Error:
        close = nearest(str(name), self._members)
        return Error(
            f"there is no program {name!r}",
            because=f"there are {', '.join(self._members)}",
            remedy=f"did you mean {close!r}?" if close else None,
        )

    # --- the executable ----------------------------------------------------------------------------------------------

    def compile(self) -> Self:
        """Compile without running; a second time does nothing.

        Raises:
            AbeleError: See :func:`~abele.frontends.poptorch.capture.capture` and
                :func:`~abele.session.compile_network`.
        """
        with as_poptorch_errors(), self._lock.held():
            if self._compiled is None:
                self._compile()
        return self

    def _compile(self) -> CompiledPrograms:
        self._compiled = compile_programs(self._members, self._options, self.state.name_of)
        return self._compiled

    def _attach(self, compiled: CompiledPrograms) -> None:
        tell_of_waiting()
        session = compiled.session
        if session.attach():
            chosen = self._options.random_seed if self._options.exists("random_seed") else torch.initial_seed()
            session.random_state = [int(chosen) & 0xFFFFFFFF, 0]

    def _on_device(self) -> Session | None:
        """The session, if it has the newest values."""
        compiled = self._compiled
        return compiled.session if compiled is not None and compiled.session.attached else None

    @property
    def session(self) -> Session:
        """The compiled network with its data; compiled now if it was not."""
        return self.compile()._ready.session

    @property
    def _ready(self) -> CompiledPrograms:
        assert self._compiled is not None
        return self._compiled

    @property
    def executable(self) -> Executable:
        """The compiled program."""
        return self.session.executable

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the programs, in the order in which they were given."""
        return tuple(self._members)

    def report(self) -> Report:
        """Cost of the executable on the machine; of loops one trip is listed."""
        return self.session.report

    def copyWeightsToHost(self) -> None:
        """Copy all of the device's state to the modules' tensors."""
        session = self._on_device()
        if session is not None:
            session.download()

    def close(self) -> None:
        """Copy what runs changed to the modules' tensors, and let go of the executable; a call compiles again."""
        with self._lock.held():
            if self._compiled is not None:
                self._compiled.session.close()
                self._compiled = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        status = "not compiled" if self._compiled is None else self._compiled.session.status
        return f"Programs({', '.join(self._members)}; {len(self.state)} tensors of state, {status})"


def _member(name: object, module: Any, example: Any) -> ResidentModule:
    """A program of a module.

    Raises:
        Error: A wrapped model, or a name that no attribute has.
        ArgumentError: No module; an example that is none.
    """
    if not isinstance(name, str) or not name.isidentifier() or hasattr(ResidentPrograms, name):
        raise Error(f"a program cannot be called {name!r}", remedy="a Python identifier that no method has, 'decode'")
    loop = module if isinstance(module, Loop) else None
    step = module.step if loop is not None else module
    if isinstance(step, PoplarExecutor):
        kind = "trainingModel" if step._training else "inferenceModel"
        raise Error(
            f"the program {name!r} is a model wrapped by poptorch.{kind}",
            because="programs run forward, and share one executable",
            remedy="the module itself; train it elsewhere, and copy its weights",
        )
    if not isinstance(step, torch.nn.Module):
        raise ArgumentError(f"the program {name!r} is {type(step).__name__}, not a module", remedy="a torch.nn.Module")
    if isinstance(example, torch.Tensor):
        return ResidentModule(name, step, loop, (example,), {})
    if isinstance(example, Mapping):
        return ResidentModule(name, step, loop, (), dict(example))
    if not isinstance(example, (tuple, list)):
        raise ArgumentError(f"the example of {name!r} is {type(example).__name__}", remedy="a tuple of arguments")
    return ResidentModule(name, step, loop, tuple(example), {})


def _named(
    members: Mapping[str, ResidentModule],
) -> tuple[dict[str, torch.Tensor], dict[str, str], dict[str, tuple[str, ...]]]:
    """Tensors of all modules under one name each, further names, and names of several tensors."""
    every = [(m.name, name, t) for m in members.values() for name, t in m.tensors.items()]
    owners: dict[str, dict[int, str]] = {}
    for program, name, tensor in every:
        owners.setdefault(name, {}).setdefault(id(tensor), f"{program}.{name}")
    tensors, called, aliases = dict[str, torch.Tensor](), dict[int, str](), dict[str, str]()
    for program, name, tensor in every:
        alone = len(owners[name]) == 1
        own = called.setdefault(id(tensor), name if alone else owners[name][id(tensor)])
        tensors.setdefault(own, tensor)
        aliases[f"{program}.{name}"] = own
        if alone:
            aliases[name] = own
    return tensors, aliases, {name: tuple(o.values()) for name, o in owners.items() if len(o) > 1}
