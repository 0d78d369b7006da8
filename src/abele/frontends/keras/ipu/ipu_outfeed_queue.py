"""``ipu_outfeed_queue``: values that a program sends to the host, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abele.errors import InvalidOptionError
from abele.frontends.keras.ipu import running
from abele.frontends.keras.ipu.enums import IPUOutfeedMode
from abele.frontends.keras.model.options import positive

__all__ = ["IPUOutfeedMode", "IPUOutfeedQueue", "ScopedIPUOutfeedQueue"]


class IPUOutfeedQueue:
    """Values that functions under :meth:`IPUStrategy.run` enqueue.

    Args:
        outfeed_mode: ``ALL`` values, or the ``LAST`` ones.
        device_ordinal: Not used.
        buffer_depth: Recorded alone; 1 to 255.
        optimise_latency: Not used.

    Raises:
        InvalidOptionError: An unknown mode, or a depth that is out of range.
    """

    def __init__(
        self,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int | None = None,
        buffer_depth: int = 3,
        optimise_latency: bool = False,
    ) -> None:
        self.mode = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        if not isinstance(self.mode, IPUOutfeedMode):
            raise InvalidOptionError(f"outfeed_mode is an IPUOutfeedMode, not {outfeed_mode!r}")
        self.buffer_depth = positive(buffer_depth, "buffer_depth", 255)
        self._steps: list[Any] = []
        self._enqueued = False

    @property
    def enqueued(self) -> bool:
        """True once a program sends to it."""
        return self._enqueued

    def enqueue(self, tensors: Any) -> None:
        """Send a structure of arrays to the host; programs do, once in each step.

        Raises:
            InvalidOptionError: Outside of a program, or in a second place of one.
        """
        program = running.current()
        if program is None:
            raise InvalidOptionError(
                "values are enqueued outside of a program", remedy="inside of a function that IPUStrategy.run runs"
            )
        self._enqueued = True
        program.enqueue(self, tensors)

    def _receive(self, steps: Any) -> None:
        count = len(jax.tree.leaves(steps)[0])
        taken = range(count) if self.mode is IPUOutfeedMode.ALL else range(count - 1, count)
        self._steps += [jax.tree.map(lambda a, n=n: np.asarray(a[n]), steps) for n in taken]

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Entries since the last time: [steps, …], or the last step's alone.

        Raises:
            InvalidOptionError: No program sends to it yet.
        """
        if not self._enqueued:
            raise InvalidOptionError(
                "the outfeed was read before any program sends to it", remedy="IPUStrategy.run a function that enqueues"
            )
        steps, self._steps = self._steps, []
        if self.mode is IPUOutfeedMode.LAST:
            return jax.tree.map(jnp.asarray, steps[-1]) if steps else None
        return jax.tree.map(lambda *parts: jnp.asarray(np.stack(parts)), *steps) if steps else ()

    def __iter__(self) -> Iterator[Any]:
        """The steps that are there, one by one."""
        while self._steps:
            yield jax.tree.map(jnp.asarray, self._steps.pop(0))


ScopedIPUOutfeedQueue = IPUOutfeedQueue
