"""``IPUStrategy.run``: one call of a function as one program.

The function is traced anew in each call, as it may read variables and datasets, and compiled once for each trace:
arrays that it closes over are inputs of the program. What it enqueues, and what it assigns to variables, are results.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core as jec
import numpy as np

from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.frontends.jaxpr import element_type, read_into
from abele.frontends.keras.ipu.config import get_ipu_config
from abele.frontends.keras.ipu.environment import settings_of
from abele.frontends.keras.model.data import narrowed
from abele.frontends.keras.private import backend, global_state
from abele.network import NetworkBuilder
from abele.session import Session


@dataclass
class Running:
    """A function that is being traced.

    Attributes:
        enqueued: For each outfeed what was enqueued, with the place in the user's program.
    """

    enqueued: dict[Any, list[tuple[Any, tuple[str, int]]]] = field(default_factory=dict)

    def enqueue(self, queue: Any, tree: Any, *, stacked: bool = False) -> None:
        """Note what a program sends.

        Args:
            queue: The outfeed.
            tree: Structure of arrays.
            stacked: True if it is of several steps, along the first dimension.

        Raises:
            InvalidOptionError: Another line of the program sends to the queue already.
        """
        frame = sys._getframe(2)
        place = (frame.f_code.co_filename, frame.f_lineno)
        sent = self.enqueued.setdefault(queue, [])
        if not stacked and any(other != place for _, other in sent):
            raise InvalidOptionError(
                "an outfeed is given values in two places of a program",
                at=f"{place[0]}:{place[1]}",
                remedy="one queue for each, or one structure with both",
            )
        steps = tree if stacked else jax.tree.map(lambda a: jax.numpy.asarray(a)[None], tree)
        sent.append((steps, place))

    def joined(self) -> dict[Any, Any]:
        """For each outfeed what it was sent, steps along the first dimension."""
        return {
            queue: jax.tree.map(lambda *parts: jax.numpy.concatenate(parts), *(tree for tree, _ in sent))
            for queue, sent in self.enqueued.items()
        }


class Assignments(backend.StatelessScope):  # type: ignore[misc]
    """Keeps what is assigned to variables for the end.

    Args:
        known: Variables with the values that they have inside.

    Attributes:
        assigned: The variables, each once.
    """

    def __init__(self, known: Sequence[tuple[Any, Any]] = ()) -> None:
        super().__init__(known or None)
        self.assigned: list[Any] = []

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        """Give variables that were made inside their first values, on the host."""
        with jax.ensure_compile_time_eval():
            super().__exit__(*args, **kwargs)

    def add_update(self, update: Any) -> None:
        """Note a variable and its new value."""
        if not any(update[0] is v for v in self.assigned):
            self.assigned.append(update[0])
        super().add_update(update)


_running: list[Running] = []
_sessions: dict[str, Session] = {}
_MOST_TRACES = 5
"""Traces of a function: one for the variables of models, one for those of optimisers, and a few to spare."""
_MOST = 16
"""Programs that are kept."""


def current() -> Running | None:
    """The function that is being traced, if one is."""
    return _running[-1] if _running else None


def nested(function: Callable[..., Any]) -> Callable[..., tuple[Any, dict[Any, Any]]]:
    """A body of a loop, which gives what it enqueues as well."""

    def body(*args: Any) -> tuple[Any, dict[Any, Any]]:
        _running.append(Running())
        try:
            result = function(*args)
        finally:
            inner = _running.pop()
        return result, {queue: jax.tree.map(lambda a: a[0], tree) for queue, tree in inner.joined().items()}

    return body


def run_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Result of a function that ran on the device.

    Raises:
        UnsupportedOpError: It computes what has no lowering.
        TypeMismatchError: It takes or makes what the device has no type for.
    """
    leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
    arrays = {n: narrowed(x) for n, x in enumerate(leaves) if _is_array(x)}
    queues: list[Any] = []
    changed: list[Any] = []
    made: list[Any] = []

    def traced(*given: Any) -> Any:
        all_leaves = list(leaves)
        for number, value in zip(arrays, given, strict=True):
            all_leaves[number] = value
        inner_args, inner_kwargs = jax.tree.unflatten(structure, all_leaves)
        running = Running()
        _running.append(running)
        try:
            with Assignments() as scope:
                try:
                    result = function(*inner_args, **inner_kwargs)
                finally:
                    made.extend(global_state.get_global_attribute("uninitialized_variables") or [])
        finally:
            _running.pop()
        sent = running.joined()
        queues.extend(sent)
        changed.extend(scope.assigned)
        return result, list(sent.values()), [scope.get_current_value(v) for v in changed]

    jaxpr, shape = _trace_with_variables(traced, list(arrays.values()), [queues, changed, made], leaves)
    inputs = [*map(narrowed, jaxpr.consts), *arrays.values()]
    outputs = _session(jaxpr, inputs)(*inputs) if jax.tree.leaves(shape) else ()
    result, sent, values = jax.tree.unflatten(jax.tree.structure(shape), [jax.numpy.asarray(o) for o in outputs])
    for queue, tree in zip(queues, sent, strict=True):
        queue._receive(jax.tree.map(np.asarray, tree))
    for variable, value in zip(changed, values, strict=True):
        variable.assign(value)
    return result


def _trace_with_variables(traced: Any, arrays: list[Any], notes: list[list[Any]], leaves: list[Any]) -> Any:
    """Trace a function until it makes no variables any more.

    Models and optimisers make variables when they are called first: the trace in which they do so is thrown away, as
    TensorFlow throws the first of a function away, and what it read of datasets is read again.
    """
    iterators = [leaf for leaf in leaves if hasattr(leaf, "rehearsed")]
    for _ in range(_MOST_TRACES):
        for note in notes:
            note.clear()
        with ExitStack() as stack:
            again = [stack.enter_context(iterator.rehearsed()) for iterator in iterators]
            try:
                # A new function each time: JAX keeps traces by function.
                found = jax.make_jaxpr(lambda *given: traced(*given), return_shape=True)(*arrays)
            except jax.errors.TracerBoolConversionError as error:
                raise UnsupportedOpError(
                    "a condition of Python asks for the value of a tensor that the device computes",
                    at=_users_line(error),
                    remedy="tf.cond, tf.where or tf.while_loop",
                ) from error
            except Exception:
                if not notes[-1]:
                    raise
                continue
            if not notes[-1]:
                for keep in again:
                    keep()
                return found
    raise InvalidOptionError("the function makes new variables in every call", remedy="make them once, outside")


def _users_line(error: BaseException) -> str | None:
    """The last line of a traceback that is neither JAX's, Keras' nor our own."""
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in ("site-packages", "abele/frontends"))
    ]
    return lines[-1] if lines else None


def _is_array(leaf: Any) -> bool:
    """True for arrays; numbers of Python are constants of the program, as in functions of TensorFlow."""
    return isinstance(leaf, np.generic) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _session(jaxpr: Any, inputs: list[Any]) -> Session:
    key = hashlib.sha256(f"{jaxpr.jaxpr}".encode() + _constants(jaxpr.jaxpr)).hexdigest()
    if key not in _sessions:
        opened = jec.ClosedJaxpr(
            jaxpr.jaxpr.replace(constvars=[], invars=[*jaxpr.jaxpr.constvars, *jaxpr.jaxpr.invars]), []
        )
        net = NetworkBuilder()
        entering = [net.input(x.shape, element_type(x.dtype), f"input{n}") for n, x in enumerate(inputs)]
        for value in read_into(net, opened, entering):
            net.output(value)
        if len(_sessions) >= _MOST:
            _sessions.pop(next(iter(_sessions))).close()
        _sessions[key] = Session.of(net.finish(), settings=settings_of(get_ipu_config(), "run"))
    return _sessions[key]


def _constants(jaxpr: Any) -> bytes:
    """Digest of the arrays that jaxprs inside close over; their text lacks them."""
    digest = hashlib.sha256()
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            for one in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(one, jec.ClosedJaxpr):
                    for const in one.consts:
                        digest.update(np.asarray(const).tobytes())
                if isinstance(one, (jec.ClosedJaxpr, jec.Jaxpr)):
                    digest.update(_constants(getattr(one, "jaxpr", one)))
    return digest.digest()
