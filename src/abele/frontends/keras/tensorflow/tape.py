"""``tf.GradientTape``: what is computed inside is recorded, and gradients are those of the record.

Every primitive of JAX that runs while a tape is open is noted with its operands and results. ``gradient`` runs the part
of the record that leads from the sources to the target once more, under ``jax.vjp``. Keras' layers and losses, JAX's
functions and those of ``tf`` are recorded alike, with values as well as while a function is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax._src import core

from abele.errors import SessionError, TypeMismatchError

from .structure import flatten, pack
from .tensors import tensor_of

Step = tuple[Callable[..., Any], tuple[Any, ...], list[Any]]
"""A computation, its operands and its results."""


class _Recorder(core.Trace):  # type: ignore[misc]
    """Runs primitives as the trace below does, and notes them."""

    __slots__ = ("below", "steps")

    def __init__(self, below: Any, steps: list[Step]) -> None:
        super().__init__()
        self.below, self.steps = below, steps
        self.requires_low = below.requires_low  # type: ignore[misc]

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        return self._noted(lambda *operands: primitive.bind(*operands, **params), args)

    def stage_value(self, val: Any) -> Any:
        with core.set_current_trace(self.below):
            made = self.below.stage_value(val)
        if made is not val:
            self.steps.append((lambda operand: operand, (val,), [made]))
        return made

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, *, symbolic_zeros: bool
    ) -> Any:
        params = {"subfuns": (fun, jvp), "symbolic_zeros": symbolic_zeros}
        return self._noted(lambda *operands: primitive.bind(*operands, **params), tracers)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, *, out_trees: Any, symbolic_zeros: bool
    ) -> Any:
        params = {"subfuns": (fun, fwd, bwd), "out_trees": out_trees, "symbolic_zeros": symbolic_zeros}
        return self._noted(lambda *operands: primitive.bind(*operands, **params), tracers)

    def _noted(self, compute: Callable[..., Any], operands: Any) -> Any:
        with core.set_current_trace(self.below):
            made = compute(*operands)
        self.steps.append((compute, tuple(operands), _results(made)))
        return made


def _results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, list | tuple) else [made]


class GradientTape:
    """Records what is computed in its ``with`` block, for gradients.

    Args:
        persistent: True if ``gradient`` is called several times.
        watch_accessed_variables: Makes no difference: sources are named when gradients are asked for.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._steps: list[Step] = []
        self._below: Any = None
        self._used = False

    def __enter__(self) -> GradientTape:
        if self._below is not None:
            raise SessionError("a GradientTape is open already", remedy="a new tape for each step")
        self._below = core.trace_ctx.trace
        core.trace_ctx.set_trace(_Recorder(self._below, self._steps))
        return self

    def __exit__(self, *_: object) -> None:
        core.trace_ctx.set_trace(self._below)
        self._below = None

    def watch(self, tensor: Any) -> None:
        """Make no difference: sources are named when gradients are asked for."""

    def watched_variables(self) -> tuple[Any, ...]:
        """Nothing: all that is computed is recorded."""
        return ()

    def reset(self) -> None:
        """Forget what was recorded."""
        self._steps.clear()

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Compute something that is not recorded."""
        if self._below is None:
            yield
            return
        with core.set_current_trace(self._below):
            yield

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, unconnected_gradients: Any = "none"
    ) -> Any:
        """Gradients of the sum of the target's elements.

        Args:
            target: A tensor that was computed while the tape was open, or a structure of them.
            sources: Variables or tensors, or a structure of them.
            output_gradients: For each target, what its elements are multiplied by.
            unconnected_gradients: "zero" if sources that the target does not depend on have zeros, not None.

        Returns:
            The structure of the sources with a gradient for each.

        Raises:
            SessionError: A tape that is not persistent was asked before.
        """
        if self._used and not self._persistent:
            raise SessionError(
                "gradient() of a GradientTape that is not persistent was called before",
                remedy="tf.GradientTape(persistent=True)",
            )
        self._used = True
        targets = [tensor_of(leaf) for leaf in flatten(target) if leaf is not None]
        leaves = flatten(sources)
        values = [_value(leaf) for leaf in leaves]
        with self.stop_recording():
            found = self._gradients(targets, values, output_gradients)
        zeros = str(getattr(unconnected_gradients, "value", unconnected_gradients)).lower() == "zero"
        pairs = zip(values, found, strict=True)
        made = [jnp.zeros_like(value) if zeros and each is None else each for value, each in pairs]
        if not self._persistent:
            self._steps.clear()
        return pack(sources, made)

    def _gradients(self, targets: list[Any], values: list[Any], output_gradients: Any) -> list[Any]:
        reached = self._reached(values)
        wanted = [target for target in targets if reached.get(id(target))]
        connected = 0
        for target in wanted:
            connected |= reached[id(target)]
        chosen = [
            number
            for number, value in enumerate(values)
            if connected >> number & 1 and jnp.issubdtype(value.dtype, jnp.inexact)
        ]
        if not wanted or not chosen:
            return [None] * len(values)
        sources = [values[number] for number in chosen]
        results, backward = jax.vjp(self._replay(wanted, sources, reached), sources)
        given = dict(zip(map(id, targets), flatten(output_gradients), strict=False)) if output_gradients else {}
        cotangents = [
            jnp.ones_like(result)
            if given.get(id(target)) is None
            else tensor_of(given[id(target)]).astype(result.dtype)
            for target, result in zip(wanted, results, strict=True)
        ]
        (found,) = backward(cotangents)
        by_number = dict(zip(chosen, found, strict=True))
        return [by_number.get(number) for number in range(len(values))]

    def _reached(self, values: list[Any]) -> dict[int, int]:
        """For each tensor that depends on sources, the set of those as bits."""
        reached: dict[int, int] = {}
        for number, value in enumerate(values):
            reached[id(value)] = reached.get(id(value), 0) | 1 << number
        for _, operands, results in self._steps:
            bits = 0
            for operand in operands:
                bits |= reached.get(id(operand), 0)
            if bits:
                for result in results:
                    reached[id(result)] = reached.get(id(result), 0) | bits
        return reached

    def _replay(
        self, targets: list[Any], sources: list[Any], reached: dict[int, int]
    ) -> Callable[[list[Any]], list[Any]]:
        """The part of the record that leads from sources to targets, as a function."""
        needed, steps = {id(target) for target in targets}, []
        for step in reversed(self._steps):
            if any(id(result) in needed and id(result) in reached for result in step[2]):
                steps.append(step)
                needed.update(id(operand) for operand in step[1])
        steps.reverse()

        def run(values: list[Any]) -> list[Any]:
            known = {id(source): value for source, value in zip(sources, values, strict=True)}
            for compute, operands, results in steps:
                made = _results(compute(*[known.get(id(operand), operand) for operand in operands]))
                for result, again in zip(results, made, strict=True):
                    known.setdefault(id(result), again)
            return [known[id(target)] for target in targets]

        return run

    def jacobian(self, target: Any, sources: Any, **_: Any) -> Any:
        """Gradients of each element of the target: [target..., source...]."""
        tensor, leaves = tensor_of(target), flatten(sources)
        values = [_value(leaf) for leaf in leaves]
        with self.stop_recording():
            found = jax.jacrev(self._replay([tensor], values, self._reached(values)))(values)[0]
        return pack(sources, found)


def _value(source: Any) -> Any:
    if isinstance(source, keras.Variable):
        return source.value
    if not isinstance(source, jax.Array):
        raise TypeMismatchError(
            f"the gradient by a {type(source).__name__}", remedy="name variables, or tensors that the tape saw"
        )
    return source


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a gradient of its own: ``f`` gives the result and a function of the gradient above."""

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def call(*args: Any) -> Any:
        return f(*args)[0]

    def backward(args: Any, above: Any) -> Any:
        found = f(*args)[1](above)
        return tuple(found) if isinstance(found, list | tuple) else (found,)

    call.defvjp(lambda *args: (call(*args), args), backward)
    return lambda *args: call(*map(tensor_of, args))
