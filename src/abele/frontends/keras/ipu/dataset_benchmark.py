"""``dataset_benchmark``: batches per second that the host makes."""

from __future__ import annotations

import json
import time
from typing import Any

import jax
import numpy as np

from abele.errors import InvalidOptionError
from abele.frontends.keras.model.data import Batches
from abele.frontends.keras.model.options import positive

__all__ = ["dataset_benchmark", "infeed_benchmark"]


class BenchmarkText(str):
    """Figures as JSON."""

    def numpy(self) -> bytes:
        """The text as bytes."""
        return self.encode()


def dataset_benchmark(
    dataset: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_debug_options: bool = True,
    do_memcpy: bool = True,
) -> BenchmarkText:
    """Figures of each epoch as JSON: elements, bytes, seconds, elements per second, and GB/s as ``bandwidth``.

    Args:
        dataset: Batches of one shape.
        number_of_epochs: Times that so many elements are taken.
        elements_per_epochs: Batches of an epoch.
        print_stats: True to print a line per epoch.
        apply_debug_options: Not used.
        do_memcpy: True to copy each batch, as a queue of inputs does.

    Raises:
        InvalidOptionError: A number that is not positive, or a dataset with fewer batches.
    """
    return _measured(Batches(dataset), number_of_epochs, elements_per_epochs, print_stats=print_stats, copies=do_memcpy)


def infeed_benchmark(
    infeed_queue: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> BenchmarkText:
    """:func:`dataset_benchmark` of the dataset of an infeed queue."""
    batches = infeed_queue.batches
    return _measured(batches, number_of_epochs, elements_per_epochs, print_stats=print_stats, copies=do_memcpy)


def _measured(batches: Batches, epochs: int, elements: int, *, print_stats: bool, copies: bool) -> BenchmarkText:
    taken, count = batches.epoch(goes_on=True), positive(elements, "elements_per_epochs")
    found = []
    for number in range(positive(epochs, "number_of_epochs")):
        start, nbytes = time.perf_counter(), 0
        for done in range(count):
            batch = next(taken, None)
            if batch is None:
                raise InvalidOptionError(
                    f"the dataset ends after {number * count + done} batches", remedy="repeat() the dataset"
                )
            arrays = jax.tree.leaves(batch)
            nbytes += sum(np.array(a, copy=copies or None).nbytes for a in arrays)
        seconds = max(time.perf_counter() - start, 1e-9)
        found.append(
            {
                "elements_processed": count,
                "total_bytes_processed": nbytes,
                "time_elapsed": seconds,
                "elements_per_second": count / seconds,
                "bandwidth": nbytes / seconds / 1e9,
            }
        )
        if print_stats:
            print(f"epoch {number}: {count / seconds:,.0f} elements per second, {nbytes / seconds / 1e9:.3f} GB/s")
    return BenchmarkText(json.dumps({"epochs": found}))
