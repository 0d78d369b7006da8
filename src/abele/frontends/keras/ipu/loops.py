"""``loops``: loops on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from abele.errors import InvalidOptionError
from abele.frontends.keras.ipu import running
from abele.frontends.keras.ipu.ipu_infeed_queue import IPUInfeedQueue
from abele.frontends.keras.model.options import positive

__all__ = ["for_loop", "repeat", "while_loop"]


def repeat(
    n: int,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Call ``body`` so many times, each time with what it gave the last time.

    Args:
        n: Number of calls, known when the program is compiled.
        body: Takes the values, and a batch where there is an infeed; gives new values of the same types.
        inputs: First values.
        infeed_queue: Queue of batches, one for each call.
        use_while_v1: Not used.

    Returns:
        The last values, as a list where there are several.

    Raises:
        InvalidOptionError: A number that is not positive and whole, or a body that gives other values than it takes.
    """
    count = positive(int(n), "n")
    single = not isinstance(inputs, (list, tuple))
    carried = [] if inputs is None else [inputs] if single else list(inputs)
    carried = [jnp.asarray(v) for v in carried]
    fed = None if infeed_queue is None else jax.tree.map(jnp.asarray, infeed_queue.take(count))
    sends: list[Any] = []

    def step(values: list[Any], batch: Any) -> Any:
        named = batch if isinstance(batch, dict) else {}
        listed = batch if isinstance(batch, tuple) else () if batch is None or named else (batch,)
        result, sent = running.nested(lambda *v: body(*v, *listed, **named))(*values)
        made = [] if result is None else list(result) if isinstance(result, (list, tuple)) else [result]
        made = made[: len(values)]
        if len(made) != len(values):
            raise InvalidOptionError(f"the body of a loop gives {len(made)} values, and takes {len(values)}")
        sends[:] = list(sent)
        made = [jnp.asarray(m, v.dtype) for m, v in zip(made, values, strict=True)]
        return made, list(sent.values())

    values, steps = jax.lax.scan(step, carried, fed, length=count)
    program = running.current()
    for queue, tree in zip(sends, steps, strict=True):
        if program is not None:
            program.enqueue(queue, tree, stacked=True)
    return values[0] if len(values) == 1 else values


def for_loop(n: int, body: Callable[..., Any], inputs: Any = None, infeed_queue: Any = None) -> Any:
    """As :func:`repeat`, with the number of the call as the first argument of ``body``."""
    single = not isinstance(inputs, (list, tuple))
    carried = [] if inputs is None else [inputs] if single else list(inputs)

    def numbered(count: Any, *values: Any) -> Any:
        result = body(count, *values)
        made = [] if result is None else list(result) if isinstance(result, (list, tuple)) else [result]
        return [count + 1, *made]

    found = repeat(n, numbered, [jnp.zeros((), jnp.int32), *carried], infeed_queue)
    rest = found[1:] if isinstance(found, list) else []
    return rest[0] if len(rest) == 1 else rest


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], inputs: Any = None) -> Any:
    """Call ``body`` while ``condition`` of the values holds."""
    carried = [jnp.asarray(v) for v in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]

    def step(values: list[Any]) -> list[Any]:
        result = body(*values)
        made = result if isinstance(result, (list, tuple)) else [result]
        return [jnp.asarray(m, v.dtype) for m, v in zip(made, values, strict=True)]

    values = jax.lax.while_loop(lambda v: condition(*v), step, carried)
    return values[0] if len(values) == 1 else values
