"""``abele.jax.jit``: functions of JAX, compiled for the machine that Abele models and run on this computer.

JAX traces the function once for each form of its arguments (shapes, types, tree, static ones); the trace becomes a
network, the network a program, and calls of that form run it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax._src import core, source_info_util
from jax._src.array import ArrayImpl

from abele.compiler import Executable
from abele.compiler.compile import collector_paused
from abele.errors import BatchSizeError, InvalidOptionError
from abele.frontends.jax.callback import call_from_jax
from abele.frontends.jax.errors import (
    ArgumentPlaceError,
    CallError,
    LeakedTracerError,
    NoArrayError,
    StaticError,
    traced_errors,
)
from abele.frontends.jax.memory import MemoryStats
from abele.frontends.jax.program import JitProgram
from abele.frontends.jax.resident import DeviceArray
from abele.frontends.jax.traced import CallRuns, Traced
from abele.frontends.jaxpr import is_key
from abele.frontends.jaxpr.reader import Random
from abele.machine import System
from abele.network import Network, inference_pipeline
from abele.report import Report
from abele.session import Settings
from abele.session.settings import SETTINGS
from abele.words import counted

canonical = jax.dtypes.canonicalize_dtype

_UNDER = threading.local()
"""``tracing`` is true in a thread while we trace: functions of ours that are called then are parts of the trace."""

# --- forms of arguments -----------------------------------------------------------------------------------------------

Form = tuple[Any, ...]
"""Shape, element type and weakness of an array: what a program is compiled for."""


def _host_form(x: Any) -> Form:
    return (x.shape, canonical(x.dtype), False)


def _jax_form(x: Any) -> Form:
    return (x.shape, x.dtype, x.weak_type)


_FORMS: dict[type, Callable[[Any], Form]] = {
    ArrayImpl: _jax_form,
    DeviceArray: _jax_form,
    np.ndarray: _host_form,
    bool: lambda x: ((), bool, True),
    int: lambda x: ((), int, True),
    float: lambda x: ((), float, True),
}


def form_of(leaf: Any) -> Form:
    """Form of an argument, by which its program is found."""
    found = _FORMS.get(type(leaf))
    if found is not None:
        return found(leaf)
    if isinstance(leaf, np.generic):
        return _host_form(leaf)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return (tuple(leaf.shape), leaf.dtype, bool(getattr(leaf, "weak_type", False)))
    return ("?", type(leaf))


_KEYS: dict[type, Callable[[Any], Hashable]] = {
    **_FORMS,
    **dict.fromkeys((ArrayImpl, DeviceArray), operator.attrgetter("aval")),
}
"""Keys of arguments, by which the program of an earlier call is found: of JAX's arrays their type as it is, which costs
a tenth of a form."""


def _key_of(leaf: Any) -> Hashable:
    found = _KEYS.get(type(leaf))
    return form_of(leaf) if found is None else found(leaf)


def check_host(name: str, leaf: Any) -> None:
    """Raise if an argument lies on another device of JAX.

    Raises:
        ArgumentPlaceError: It does.
    """
    other = next((d for d in getattr(leaf, "devices", set)() if d.platform != "cpu"), None)
    if other is not None:
        raise ArgumentPlaceError(
            f"{name} is on {other}",
            because="arguments are read from the memory of the host",
            remedy="jax.device_put(x, jax.devices('cpu')[0]), or run with JAX_PLATFORMS=cpu",
        )


# --- what compiling gives ---------------------------------------------------------------------------------------------


class Compiled:
    """A function compiled for one form of its arguments.

    Attributes:
        report: Cost of the program on the machine, and of its runs on the host.
        network: The function as the passes found it.
        executable: The compiled program.
    """

    def __init__(self, program: JitProgram) -> None:
        self._program = program
        self._build = program.traced.result_tree.unflatten

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Results for arguments of that form; static ones are left out.

        Raises:
            CallError: Arguments of another form.
        """
        leaves, tree = jax.tree.flatten((args, kwargs))
        self._check(leaves, tree)
        return self.run(leaves)

    def run(self, leaves: Sequence[Any]) -> Any:
        """Results for the leaves of arguments that are of that form."""
        return self._build(self._program(leaves))

    def close(self) -> None:
        """Let go of the device; results that are there come to the host."""
        self._program.close()

    def _check(self, leaves: Sequence[Any], tree: Any) -> None:
        traced = self._program.traced
        if tree != traced.tree:
            raise CallError(
                f"{traced.name} was compiled for arguments {traced.tree}",
                because=f"got {tree}",
                remedy="pass arguments of the same structure, without static ones; or call the jitted function",
            )
        for name, leaf, aval in zip(traced.names, leaves, self._program.traced.in_avals, strict=True):
            shape, dtype, *_ = form_of(leaf)
            given = canonical(dtype) if dtype in (bool, int, float) else dtype
            if shape != aval.shape or given != aval.dtype:
                got = f"{np.dtype(given).name}{list(shape)}" if shape != "?" else dtype.__name__
                raise CallError(
                    f"{name} of {traced.name} was compiled as {aval.str_short()}, got {got}",
                    remedy="convert it, or call the jitted function, which compiles again",
                )

    @property
    def report(self) -> Report:
        """Cost of the program on the machine, and of its runs on the host if there were any."""
        return self._program.report

    @property
    def network(self) -> Network:
        """The function as a network."""
        return self._program.network

    def __abele_network__(self) -> tuple[Network, Mapping[str, Any]]:
        """The function as a network and the arrays that it closes over, as :func:`abele.onnx.export` asks for them."""
        return self._program.network, self._program.weights

    @property
    def executable(self) -> Executable:
        """The compiled program."""
        return self._program.compiled.executable

    @property
    def in_tree(self) -> Any:
        """Tree of the arguments, ``(args, kwargs)`` without static ones."""
        return self._program.traced.tree

    @property
    def out_tree(self) -> Any:
        """Tree of the results."""
        return self._program.traced.result_tree

    @property
    def args_info(self) -> Any:
        """Type of each argument, in their tree."""
        return self.in_tree.unflatten([jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self._program.traced.in_avals])

    def as_text(self) -> str:
        """The network after the passes, as it is lowered."""
        return str(inference_pipeline(fuse_maps=True).run(self.network))

    def cost_analysis(self) -> dict[str, float]:
        """Costs of one call on the machine.

        Returns:
            ``flops``, ``bytes accessed``, ``cycles``, ``optimal_seconds`` and ``energy_joules``, as far as the report
            has them.
        """
        return self._program.costs()

    def memory_analysis(self) -> MemoryStats:
        """Bytes of arguments, results and of the program on the machine."""
        return self._program.memory()


class Lowered:
    """A function traced for one form of its arguments, as a network."""

    def __init__(self, traced: Traced, settings: Settings) -> None:
        self._traced, self._settings = traced, settings

    def compile(self) -> Compiled:
        """Compile it.

        Raises:
            OutOfMemoryError: It does not fit on the machine; the error says what would.
        """
        return Compiled(JitProgram(self._traced, self._settings))

    @property
    def network(self) -> Network:
        """The function as a network, before the passes."""
        return self._traced.captured.network

    @property
    def in_tree(self) -> Any:
        """Tree of the arguments, ``(args, kwargs)`` without static ones."""
        return self._traced.tree

    @property
    def out_tree(self) -> Any:
        """Tree of the results."""
        return self._traced.result_tree

    @property
    def out_info(self) -> Any:
        """Type of each result, in their tree."""
        return self.out_tree.unflatten([jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self._traced.jaxpr.out_avals])

    def as_text(self) -> str:
        """The network as text, before the passes."""
        return str(self.network)


# --- jit --------------------------------------------------------------------------------------------------------------


class Jitted:
    """A function that is compiled for each form of its arguments when it is first called so.

    Attributes:
        report: Report of the program that was compiled last; None before the first call.
    """

    def __init__(
        self, fn: Callable[..., Any], names: ArgumentNames, iterations: int | None, settings: Settings, random: Random
    ) -> None:
        self.__wrapped__, self.__name__ = fn, getattr(fn, "__name__", type(fn).__name__)
        functools.update_wrapper(self, fn)
        self._fn, self._names, self._iterations, self._settings = fn, names, iterations, settings
        self._random = random
        self._jax = jax.jit(fn, **names.given)
        self._programs: dict[Hashable, Compiled] = {}
        self._known: dict[Hashable, Compiled] = {}
        self._last: Compiled | None = None
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Results of the function."""
        if not core.trace_state_clean():
            return self._inside(args, kwargs)
        statics: Hashable = ()
        if self._names.statics:
            args, kwargs, statics = self._names.split(args, kwargs)
        leaves, tree = _flatten((args, kwargs))
        key = (tree, statics, *map(_key_of, leaves))
        compiled = self._known.get(key)
        if compiled is None:
            compiled = self._compiled((tree, statics, *map(form_of, leaves)), leaves, tree, statics)
            self._known[key] = compiled
        self._last = compiled
        return compiled.run(leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """The function as a method."""
        return self if instance is None else functools.partial(self, instance)

    def _compiled(self, key: Hashable, leaves: Sequence[Any], tree: Any, statics: Any) -> Compiled:
        with self._lock, collector_paused():
            found = self._programs.get(key)
            if found is None:
                traced = self._traced(leaves, tree, statics)
                for name, leaf in zip(traced.names, leaves, strict=True):
                    check_host(name, leaf)
                found = self._programs[key] = Compiled(JitProgram(traced, self._settings))
            return found

    def _traced(self, leaves: Sequence[Any], tree: Any, statics: Any) -> Traced:
        args, kwargs = tree.unflatten(leaves)
        donated = self._names.donated(args, kwargs, statics)
        names = self._names.of_leaves(args, kwargs, statics)
        in_axes = self._in_axes(leaves, donated, (args, kwargs))
        if in_axes is not None:
            leaves = [self._one_of(*each) for each in zip(leaves, in_axes, names, strict=True)]
            args, kwargs = tree.unflatten(leaves)
        traced = self._trace(*self._names.merged(args, kwargs, statics))
        _check_closed(self.__name__, traced.jaxpr, len(names))
        return Traced(
            name=self.__name__,
            jaxpr=traced.jaxpr,
            tree=tree,
            result_tree=traced.out_tree,
            names=tuple(names),
            donated=tuple(donated),
            lanes=None if in_axes is None else self._lanes(in_axes, traced.out_tree),
            random=self._random,
        )

    def _in_axes(self, leaves: Sequence[Any], donated: Sequence[bool], arguments: Any) -> tuple[int | None, ...] | None:
        """Axis of each leaf that has an index for each run; None where a call runs once."""
        if self._iterations is None:
            return None
        return tuple(None if given or not np.shape(x) else 0 for x, given in zip(leaves, donated, strict=True))

    def _lanes(self, in_axes: tuple[int | None, ...], result_tree: Any) -> CallRuns:
        """Runs of one call."""
        assert self._iterations is not None
        return CallRuns(self._iterations, None, in_axes, (0,) * result_tree.num_leaves)

    def _one_of(self, leaf: Any, axis: int | None, name: str) -> Any:
        """Type of an argument of one run."""
        assert self._iterations is not None
        words = f"{self._iterations} device iterations read", "numbers are the same for all"
        return one_of(leaf, axis, self._iterations, name, words)

    def _trace(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self._tracing(), traced_errors(self.__name__):
            return self._jax.trace(*args, **kwargs)

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        before, _UNDER.tracing = getattr(_UNDER, "tracing", False), True
        try:
            yield
        finally:
            _UNDER.tracing = before

    def _inside(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A call in the middle of a trace: a part of ours; in JAX's own, a call of the host."""
        if getattr(_UNDER, "tracing", False):
            return self._jax(*args, **kwargs)
        args, kwargs, statics = self._names.split(args, kwargs)
        leaves, tree = _flatten((args, kwargs))

        def function(*given: Any) -> Any:
            some, by_name = tree.unflatten(given)
            merged, named = self._names.merged(some, by_name, statics)
            return self._jax(*merged, **named)

        def compiled(flat: Callable[..., Any], given: Sequence[Any]) -> Compiled:
            inner = Jitted(flat, ArgumentNames(flat), self._iterations, self._settings, self._random)
            return inner.lower(*map(_type, given)).compile()

        return call_from_jax(function, leaves, compiled)

    # --- ahead of time ------------------------------------------------------------------------------------------------

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace the function for arguments, or for types of them (``jax.ShapeDtypeStruct``); nothing runs."""
        args, kwargs, statics = self._names.split(args, kwargs)
        leaves, tree = _flatten((args, kwargs))
        return Lowered(self._traced(leaves, tree, statics), self._settings)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """JAX's trace of the function, ``jax.stages.Traced``."""
        return self._trace(args, kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Types of the results, of one run."""
        return self._trace(args, kwargs).out_info

    def clear_cache(self) -> None:
        """Forget compiled programs; results that are on the device come to the host."""
        with self._lock:
            self._known.clear()
            while self._programs:
                self._programs.popitem()[1].close()
            self._last = None
        self._jax.clear_cache()

    @property
    def report(self) -> Report | None:
        """Report of the program that ran last; None before the first call."""
        return None if self._last is None else self._last.report

    def __abele_network__(self) -> tuple[Network, Mapping[str, Any]]:
        """Network and weights of the program that ran last; see :class:`Compiled`.

        Raises:
            CallError: Nothing ran yet.
        """
        if self._last is None:
            raise CallError(
                f"{self.__name__} has no program yet", remedy="call it first, or take its .lower(…).compile()"
            )
        return self._last.__abele_network__()

    def __repr__(self) -> str:
        return f"<abele.jax.jit of {self.__name__}, {counted(len(self._programs), 'program')}>"


def _check_closed(name: str, jaxpr: Any, arguments: int) -> None:
    """Raise if a function closes over values of another trace, which enter before its arguments."""
    others = set(jaxpr.jaxpr.invars[: len(jaxpr.jaxpr.invars) - arguments])
    if others:
        reads = (eqn for eqn in jaxpr.jaxpr.eqns if others.intersection(v for v in eqn.invars if v in others))
        frames = (source_info_util.user_frame(eqn.source_info.traceback) for eqn in reads)
        at = next((f"{f.file_name}:{f.start_line}" for f in frames if f is not None), None)
        raise LeakedTracerError(
            f"{name} cannot be traced: it closes over {counted(len(others), 'value')} of another trace",
            at=at,
            because="a traced value was kept in a global, an object or a function that outlives its trace",
            remedy="return the value from the traced function, and pass it as an argument",
        )


def _flatten(arguments: Any) -> tuple[list[Any], Any]:
    leaves, tree = jax.tree_util.tree_flatten(arguments)
    return leaves, tree


def _type(leaf: Any) -> jax.ShapeDtypeStruct:
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def one_of(leaf: Any, axis: int | None, count: int, name: str, words: tuple[str, str]) -> Any:
    """Type of one of the arrays along an axis of an argument; the argument itself for no axis.

    Raises:
        BatchSizeError: The axis has another extent, or is not there.
    """
    if axis is None:
        return leaf
    shape, (what, else_) = tuple(np.shape(leaf)), words
    if not -len(shape) <= axis < len(shape) or shape[axis] != count:
        raise BatchSizeError(
            f"{name} has shape {list(shape)}, and {what} axis {axis} of {count}",
            remedy=f"stack what {count} runs take along it: jnp.stack([...], {axis}); {else_}",
        )
    place = axis % len(shape)
    left = (*shape[:place], *shape[place + 1 :])
    return jax.ShapeDtypeStruct(left, leaf.dtype if is_key(leaf.dtype) else canonical(leaf.dtype))


# --- arguments by position and by name --------------------------------------------------------------------------------


class ArgumentNames:
    """Names and positions of a function's arguments: which are static, and which are donated."""

    def __init__(
        self,
        fn: Callable[..., Any],
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None,
    ) -> None:
        self.given = {
            "static_argnums": static_argnums,
            "static_argnames": static_argnames,
            "donate_argnums": donate_argnums,
            "donate_argnames": donate_argnames,
        }
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        self._positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._static = self._both(static_argnums, static_argnames)
        self._donate = self._both(donate_argnums, donate_argnames)
        self.statics = bool(self._static[0] or self._static[1])

    def _both(self, numbers: Any, names: Any) -> tuple[frozenset[int], frozenset[str]]:
        """Positions and names; where only one kind is given, the other follows from the signature, as in JAX."""
        found = (numbers,) if isinstance(numbers, int) else tuple(numbers or ())
        named = (names,) if isinstance(names, str) else tuple(names or ())
        every = self._positional
        if numbers is not None and names is None:
            named = tuple(every[n] for n in found if -len(every) <= n < len(every))
        elif numbers is None and names is not None:
            found = tuple(every.index(n) for n in named if n in every)
        return frozenset(found), frozenset(named)

    @property
    def static_names(self) -> frozenset[str]:
        """Names of static arguments."""
        return self._static[1]

    def positions(self, count: int) -> tuple[int, ...]:
        """Positions of static ones among so many arguments."""
        return tuple(sorted({n % count for n in self._static[0] if -count <= n < count})) if count else ()

    def split(self, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any], Hashable]:
        """Arguments without the static ones, and these.

        Raises:
            StaticError: A static argument cannot be hashed.
        """
        names = self._static[1]
        places = self.positions(len(args))
        own = tuple((n, args[n]) for n in places)
        named = tuple((n, kwargs[n]) for n in sorted(names & kwargs.keys()))
        for where, value in (*own, *named):
            try:
                hash(value)
            except TypeError:
                name = where if isinstance(where, str) else self._name(where)
                raise StaticError(
                    f"the static argument {name!r} is a {type(value).__name__}, which cannot be hashed",
                    because="programs are found by the values of static arguments",
                    remedy="a tuple for a list, a frozen dataclass for an object; or do not make it static",
                ) from None
        left = tuple(a for n, a in enumerate(args) if n not in places)
        typed = tuple((n, type(v), v) for n, v in (*own, *named))
        return left, {n: v for n, v in kwargs.items() if n not in names}, (len(own), typed)

    def merged(self, args: Sequence[Any], kwargs: Mapping[str, Any], statics: Any) -> tuple[list[Any], dict[str, Any]]:
        """Arguments with the static ones where they were."""
        merged, named = list(args), dict(kwargs)
        for where, _, value in statics[1] if statics else ():
            if isinstance(where, str):
                named[where] = value
            else:
                merged.insert(where, value)
        return merged, named

    def _places(self, args: Sequence[Any], statics: Any) -> list[int]:
        """Position of each argument that is not static."""
        taken = {where for where, *_ in (statics[1] if statics else ()) if isinstance(where, int)}
        return [n for n in range(len(args) + len(taken)) if n not in taken]

    def donated(self, args: Sequence[Any], kwargs: Mapping[str, Any], statics: Any) -> list[bool]:
        """True for each leaf that is donated."""
        numbers, names = self._donate
        places = self._places(args, statics)
        total = len(args) + sum(isinstance(where, int) for where, *_ in (statics[1] if statics else ()))
        wanted = {n % total for n in numbers if -total <= n < total} if total else set()
        flags = [place in wanted for place in places for _ in jax.tree.leaves(args[places.index(place)])]
        return flags + [name in names for name in sorted(kwargs) for _ in jax.tree.leaves(kwargs[name])]

    def of_leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any], statics: Any) -> list[str]:
        """A name for each leaf, such as ``params.w1``; each once."""
        names, seen = list[str](), dict[str, int]()
        roots = [(self._name(place), arg) for place, arg in zip(self._places(args, statics), args, strict=True)]
        roots += [(name, kwargs[name]) for name in sorted(kwargs)]
        for root, tree in roots:
            for path, _ in jax.tree_util.tree_leaves_with_path(tree):
                name = ".".join(filter(None, (root, jax.tree_util.keystr(path, simple=True, separator="."))))
                seen[name] = seen.get(name, -1) + 1
                names.append(f"{name}:{seen[name]}" if seen[name] else name)
        return names

    def _name(self, place: int) -> str:
        return self._positional[place] if place < len(self._positional) else f"arg{place}"


def settings_of(
    fn: Callable[..., Any], target: str | System | None, settings: Settings | Mapping[str, Any] | None
) -> Settings:
    """Settings of a function's programs, which bear its name unless they have one."""
    if not isinstance(settings, Settings):
        settings = Settings(**{SETTINGS.find(name): value for name, value in (settings or {}).items()})
    chosen = replace(settings, fuse_maps=True)
    if target is not None:
        chosen = replace(chosen, system=target)
    named = chosen.name != Settings().name
    return chosen if named else replace(chosen, name=getattr(fn, "__name__", type(fn).__name__))


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    target: str | System | None = None,
    device_iterations: int | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    random: Random = "exact",
    inline: bool = False,
    keep_unused: bool = False,
) -> Any:
    """Compile a function of JAX for the machine; to be used as ``jax.jit`` is, also as a decorator.

    Args:
        fn: Function of arrays, and trees of arrays; ``jax.grad``, ``vmap``, ``scan`` and others are traced by JAX.
        static_argnums: Positions of arguments that are no arrays and are compiled in.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of arguments whose memory a result takes: they stay on the device from call to call.
        donate_argnames: Names of such arguments.
        target: The machine: a preset's name, a file, or a System; bow-2000 unless ``ABELE_SYSTEM`` says another.
        device_iterations: Runs of one call: arrays have a leading axis of so many, numbers are the same for all, and
            donated arguments are carried from run to run.
        settings: Settings of the session, or a dict of them.
        random: ``exact`` for the numbers that JAX draws, ``device`` for those of the machine's generator, which is
            faster.
        inline: Has no effect, as with programs of JAX that are not part of another.
        keep_unused: Has no effect: arguments that are not read are not sent.

    Raises:
        InvalidOptionError: A number of iterations below one, or a source of random numbers that there is not.
    """
    if fn is None:
        given = {k: v for k, v in locals().items() if k != "fn"}
        return functools.partial(jit, **given)
    if isinstance(fn, Jitted):
        fn = fn.__wrapped__
    if not callable(fn):
        raise NoArrayError(f"jit takes a function, not {fn!r}", remedy="@jax.jit, or @jax.jit(static_argnums=...)")
    if device_iterations is not None and (type(device_iterations) is not int or device_iterations < 1):
        raise InvalidOptionError(f"device_iterations is a positive whole number, not {device_iterations!r}")
    if random not in ("exact", "device"):
        raise InvalidOptionError(f"random is 'exact' or 'device', not {random!r}")
    names = ArgumentNames(fn, static_argnums, static_argnames, donate_argnums, donate_argnames)
    return Jitted(fn, names, device_iterations, settings_of(fn, target, settings), random)
