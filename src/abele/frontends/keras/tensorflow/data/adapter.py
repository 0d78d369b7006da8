"""Datasets as Keras reads them: ``fit``, ``evaluate`` and ``predict`` of any model of Keras take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from abele.frontends.keras.private import DataAdapter, class_weights, data_adapters

from ..structure import flatten
from .dataset import Dataset
from .nodes import InvalidArgumentError


class DatasetAdapter(DataAdapter):  # type: ignore[misc]
    """A dataset of batches, for Keras.

    Args:
        dataset: Its elements are inputs, or tuples of inputs, targets and weights.
        class_weight: The weight of each class.
    """

    def __init__(self, dataset: Dataset, class_weight: dict[int, float] | None = None) -> None:
        self._dataset = dataset
        self._class_weight = class_weight

    def get_numpy_iterator(self) -> Iterator[Any]:
        """The batches as NumPy arrays."""
        for batch in self._dataset.as_numpy_iterator():
            yield batch if self._class_weight is None else self._weighted(batch)

    def get_jax_iterator(self) -> Iterator[Any]:
        """The same: JAX puts arrays on its device when they are needed."""
        return self.get_numpy_iterator()

    def _weighted(self, batch: Any) -> Any:
        if not isinstance(batch, tuple) or len(batch) != 2:
            raise InvalidArgumentError("class_weight needs a dataset of pairs of inputs and targets")
        weights = class_weights(batch[1], self._class_weight)
        return (*batch, np.asarray(weights))

    @property
    def num_batches(self) -> int | None:
        """The number of batches, None if there is none or it is not known."""
        count = self._dataset.node.count()
        return None if count < 0 else count

    @property
    def batch_size(self) -> int | None:
        """The leading dim of the first tensor."""
        leaves = flatten(self._dataset.element_spec, lists=False)
        return leaves[0].shape[0] if leaves and leaves[0].shape else None

    @property
    def has_partial_batch(self) -> bool | None:
        """Not known."""
        return None

    @property
    def partial_batch_size(self) -> int | None:
        """Not known."""
        return None


_get_data_adapter = data_adapters.get_data_adapter


def _get_adapter(x: Any, y: Any = None, sample_weight: Any = None, **settings: Any) -> Any:
    if not isinstance(x, Dataset):
        return _get_data_adapter(x, y, sample_weight=sample_weight, **settings)
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise InvalidArgumentError(f"{name} beside a dataset", remedy="make it a part of the dataset's elements")
    return DatasetAdapter(x, settings.get("class_weight"))


def let_keras_take_datasets() -> None:
    """Let Keras' ``fit``, ``evaluate`` and ``predict`` take datasets."""
    data_adapters.get_data_adapter = _get_adapter
