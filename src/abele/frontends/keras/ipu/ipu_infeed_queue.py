"""``ipu_infeed_queue``: batches that a program takes, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import jax
import numpy as np

from abele.errors import InvalidOptionError, SessionError
from abele.frontends.keras.model.data import Batches
from abele.frontends.keras.model.options import positive

__all__ = ["IPUInfeedQueue", "IPUIterator", "IPUOwnedIterator"]


class IPUInfeedQueue:
    """Batches of a dataset for :func:`~abele.frontends.keras.ipu.loops.repeat`.

    Args:
        dataset: Batches of one shape.
        device_ordinal: Not used.
        prefetch_depth: Recorded alone; 1 to 255.
        optimise_latency: Not used.

    Raises:
        InvalidOptionError: A depth that is out of range, or data without shapes.
    """

    def __init__(
        self,
        dataset: Any,
        device_ordinal: int | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise InvalidOptionError(f"an infeed takes no {', '.join(kwargs)}", remedy="dataset, prefetch_depth")
        self.prefetch_depth = positive(3 if prefetch_depth is None else prefetch_depth, "prefetch_depth", 255)
        self.batches = Batches(dataset)
        self._initialised = False
        self.number_of_dequeues = 0

    @property
    def initializer(self) -> None:
        """Begin from the first batch; once.

        Raises:
            InvalidOptionError: It was begun already.
        """
        if self._initialised:
            raise InvalidOptionError("the infeed was initialised already", remedy="another IPUInfeedQueue")
        self._initialised = True

    def __iter__(self) -> NoReturn:
        """Refused.

        Raises:
            SessionError: Always.
        """
        raise SessionError(
            "an infeed is read by programs, and not by the host", remedy="iterate over the dataset in its place"
        )

    def take(self, count: int) -> Any:
        """The next batches: [count, …].

        Raises:
            InvalidOptionError: There are fewer.
        """
        found: list[Any] = []
        while len(found) < count:
            before = len(found)
            for batch in self.batches.epoch(goes_on=True):
                found.append(batch)
                if len(found) == count:
                    break
            else:
                if len(found) == before or self.batches.cardinality >= 0:
                    raise InvalidOptionError(
                        f"a program takes {count} batches, and the dataset has {len(found)} left",
                        remedy="repeat() the dataset",
                    )
        self.number_of_dequeues += count
        return jax.tree.map(lambda *parts: np.stack(parts), *found)


class IPUIterator:
    """Iterator over the batches of a dataset, for functions under ``IPUStrategy.run``.

    Args:
        dataset: Batches of one shape.
    """

    def __init__(self, dataset: Any = None, **kwargs: Any) -> None:
        self.batches = Batches(dataset)
        self._iterator = self.batches.epoch(goes_on=True)

    def __iter__(self) -> Iterator[Any]:
        """Itself."""
        return self

    def __next__(self) -> Any:
        """The next batch."""
        return next(self._iterator)


IPUOwnedIterator = IPUIterator
