"""Loops over rows of a tensor in a program, as loops of the device.

The body is traced once with abstract values, to find what it changes: names of the function, variables, elements of
iterators, entries of outfeeds. These become carried values, inputs and results of a ``scan``. Where that does not hold
together (a name changes its shape, or is no array), the loop is unrolled, as Python runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abele.frontends.keras.ipu import running
from abele.frontends.keras.model.data import narrowed
from abele.frontends.keras.private import global_state

from .data.dataset import DatasetIterator, reads_of
from .randomness import draw_key, drawn_from

MOST_UNROLLED = 8
"""Rows up to which a loop is unrolled: so few are traced as fast, and may do whatever Python can."""
_TRIALS = 4
"""Traces in which the types of carried values may still change."""


class Undefined:
    """A name that nothing was assigned to yet."""

    def __repr__(self) -> str:
        return "a name without a value"


UNDEFINED = Undefined()


class _NoLoopError(Exception):
    """The body cannot be that of a loop of the device."""


def value_of(names: dict[str, Any], name: str) -> Any:
    """Value of a local name, or that it has none."""
    return names.get(name, UNDEFINED)


def for_each(rows: Any, body: Callable[..., Any], values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    """Values of names after the loop ``for row in rows: values = body(row, *values)``."""
    if _is_long(rows):
        try:
            return _on_device(rows, body, values)
        except (_NoLoopError, jax.errors.JAXTypeError, StopIteration):
            pass
    if isinstance(rows, jax.Array) and not isinstance(rows, jax.core.Tracer):
        with jax.ensure_compile_time_eval():
            rows = list(rows)
    for row in rows:
        values = body(row, *values)
    return values


def _is_long(rows: Any) -> bool:
    return running.current() is not None and isinstance(rows, jax.Array) and rows.ndim > 0 and len(rows) > MOST_UNROLLED


class _Body:
    """One trip, with all that it changes besides its names.

    Attributes:
        variables: Variables that it assigns.
        queues: Outfeeds that it sends to.
        reads: Iterators in the order of its reads.
        draws: True if it takes random numbers of ``tf.random``.
    """

    def __init__(self, body: Callable[..., Any]) -> None:
        self.body = body
        self.variables: list[Any] = []
        self.queues: list[Any] = []
        self.reads: list[DatasetIterator] = []
        self.draws = False

    def probe(self, row: Any, values: Any) -> tuple[Any, ...]:
        """Types of the names after a trip; notes what it changes; nothing stays changed."""
        found: list[Any] = []

        def trip(given: Any) -> Any:
            key = jax.random.key(0)
            with drawn_from(key) as draws:
                result, sent, scope = self._run(row, _filled(values, given), {})
            self.draws = self.draws or bool(draws.count)
            self.queues = list(sent)
            self.variables += [v for v in scope.assigned if not any(v is w for w in self.variables)]
            found.append(result)
            return [leaf for leaf in jax.tree.leaves(result) if _is_value(leaf)]

        with ExitStack() as stack:
            rehearsed: list[DatasetIterator] = []

            def read(iterator: DatasetIterator, draw: Callable[[], Any]) -> Any:
                if not any(iterator is other for other in rehearsed):
                    rehearsed.append(iterator)
                    stack.enter_context(iterator.rehearsed())
                self.reads.append(iterator)
                return draw()

            self.reads = []
            with reads_of(read):
                shapes = iter(jax.eval_shape(trip, _arrays(values)))
        return tuple(jax.tree.map(lambda leaf: next(shapes) if _is_value(leaf) else leaf, found[-1]))

    def trip(self, row: Any, values: Any, assigned: Any, elements: Any, key: Any) -> Any:
        """Names, variables and sent values after a trip."""
        left = iter(elements)
        before = {id(v): (v, value) for v, value in zip(self.variables, assigned, strict=True)}
        with reads_of(lambda iterator, draw: next(left)), drawn_from(key) if self.draws else ExitStack():
            result, sent, scope = self._run(row, values, before)
        after = [_current(scope, v) for v in self.variables]
        return result, after, [sent[queue] for queue in self.queues]

    def _run(self, row: Any, values: Any, before: dict[int, Any]) -> Any:
        outer = global_state.get_global_attribute("stateless_scope")
        known = [(v, outer.state_mapping.get(id(v))) for v in getattr(outer, "assigned", [])]
        mapping = {id(v): (v, value) for v, value in known} | before
        scope = running.Assignments(list(mapping.values()))
        with scope:
            result, sent = running.nested(self.body)(row, *values)
        return result, sent, scope


def _on_device(rows: Any, body: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    one = _Body(body)
    made = len(global_state.get_global_attribute("uninitialized_variables") or [])
    values = _settled(one, rows[0], values)
    if len(global_state.get_global_attribute("uninitialized_variables") or []) != made:
        return body(rows[0], *values)  # Variables are made: this trace is thrown away.
    count = len(rows)
    outer = global_state.get_global_attribute("stateless_scope")
    assigned = [_current(outer, v) for v in one.variables]
    elements = _elements(one.reads, count)
    key = draw_key() if one.draws else None

    def step(carried: Any, given: Any) -> Any:
        number, arrays, state = carried
        row, fed = given
        inner = None if key is None else jax.random.fold_in(key, number)
        result, after, sent = one.trip(row, _filled(values, arrays), state, fed, inner)
        kept = [jnp.asarray(new, old.dtype) for new, old in zip(_arrays(result), arrays, strict=True)]
        return (number + 1, kept, after), sent

    start = (jnp.zeros((), jnp.int32), [jnp.asarray(a) for a in _arrays(values)], assigned)
    (_, arrays, assigned), sent = jax.lax.scan(step, start, (rows, elements), length=count)
    for variable, value in zip(one.variables, assigned, strict=True):
        outer.add_update((variable, value))
    program = running.current()
    assert program is not None
    for queue, tree in zip(one.queues, sent, strict=True):
        program.enqueue(queue, tree, stacked=True)
    return _filled(values, arrays)


def _settled(one: _Body, row: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """First values of the types that a trip gives: names without one are zeros, numbers become arrays."""
    for _ in range(_TRIALS):
        after = one.probe(row, values)
        first = tuple(_first(old, new) for old, new in zip(values, after, strict=True))
        if _types(first) == _types(values):
            return first
        values = first
    raise _NoLoopError


def _first(old: Any, new: Any) -> Any:
    leaves, structure = jax.tree.flatten(new)
    if old is UNDEFINED:
        return jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), new) if all(map(_is_value, leaves)) else UNDEFINED
    before, known = jax.tree.flatten(old)
    if known != structure:
        raise _NoLoopError
    return jax.tree.unflatten(structure, [_leaf(*pair) for pair in zip(before, leaves, strict=True)])


def _leaf(old: Any, new: Any) -> Any:
    if not _is_value(new):
        if old is not new:
            raise _NoLoopError
        return old
    if not _is_value(old) or np.shape(old) != new.shape:
        raise _NoLoopError
    return jnp.asarray(old).astype(new.dtype)


def _is_value(leaf: Any) -> bool:
    """True for arrays, their types, and numbers."""
    return isinstance(leaf, int | float | np.generic) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _arrays(values: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(values) if _is_value(leaf)]


def _filled(values: Any, arrays: Any) -> Any:
    left = iter(arrays)
    return jax.tree.map(lambda leaf: next(left) if _is_value(leaf) else leaf, values)


def _types(values: Any) -> list[Any]:
    return [(np.shape(leaf), getattr(leaf, "dtype", None)) for leaf in _arrays(values)]


def _current(scope: Any, variable: Any) -> Any:
    value = scope.get_current_value(variable)
    return jnp.asarray(variable._value) if value is None else value


def _elements(reads: list[DatasetIterator], count: int) -> list[Any]:
    """Elements for each read, trips along the first dimension."""
    found: list[list[Any]] = [[] for _ in reads]
    with jax.ensure_compile_time_eval():  # Values, in the middle of a trace.
        for _ in range(count):
            for place, iterator in zip(found, reads, strict=True):
                place.append(jax.tree.map(narrowed, next(iterator)))
    return [jax.tree.map(lambda *parts: jnp.asarray(np.stack(parts)), *place) for place in found]
