"""Data of executions: batches of one shape, and the steps that they make.

Programs are compiled for fixed shapes, so a batch that is smaller than the others is refused, and so is data of which
nobody knows how much there is.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from abele.arrays import Array
from abele.errors import BatchSizeError, ElementRangeError, InvalidOptionError, SessionError, TypeMismatchError
from abele.frontends.keras import private
from abele.frontends.keras.model.steps import BatchType
from abele.words import counted

INFINITE, UNKNOWN = -1, -2
"""Cardinalities of datasets without a number."""


class DroppedDataWarning(UserWarning):
    """Batches at the end of an epoch that the steps do not use."""


def narrowed(array: Any) -> Array:
    """An array of 64-bit numbers in 32 bits; others as they are.

    Raises:
        TypeMismatchError: Elements that are no numbers.
        ElementRangeError: Whole numbers that do not fit.
    """
    found = np.asarray(array)
    if found.dtype.kind not in "fiub" and found.dtype.name != "bfloat16":
        raise TypeMismatchError(
            f"an array of {found.dtype} cannot be sent to the device", remedy="encode it as numbers on the host"
        )
    if found.dtype == np.float64:
        return found.astype(np.float32)
    if found.dtype in (np.int64, np.uint64):
        small = np.dtype(np.int32 if found.dtype == np.int64 else np.uint32)
        limits = np.iinfo(small)
        if found.size and (found.min() < limits.min or found.max() > limits.max):
            raise ElementRangeError(f"an element of an array of {found.dtype} does not fit in {small}")
        return found.astype(small)
    return found


def _is_lookalike(data: Any) -> bool:
    return hasattr(data, "element_spec") and hasattr(data, "cardinality")


class Batches:
    """Batches of NumPy arrays, epoch by epoch.

    Args:
        x: Arrays, or a dataset of batches.
        y: Targets, for arrays.
        sample_weight: Weights of samples, for arrays.
        batch_size: Samples of each batch, for arrays; 32 if left out.
        shuffle: True to take arrays in another order in each epoch.
        class_weight: Weights of samples by class.

    Raises:
        InvalidOptionError: Generators, iterators and sequences, whose shapes and sizes are not known.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        class_weight: Mapping[int, float] | None = None,
    ) -> None:
        if isinstance(x, (types.GeneratorType, private.keras.utils.PyDataset)) or hasattr(x, "__next__"):
            raise InvalidOptionError(
                f"a {type(x).__name__} cannot be sent to the device",
                because="programs are compiled for shapes and numbers of batches, and it has neither",
                remedy="tf.data.Dataset.from_generator with an output_signature, or arrays",
            )
        self._class_weight = class_weight
        self._partial: tuple[int, int] | None = None
        self._dataset = x if _is_lookalike(x) else None
        if self._dataset is not None:
            if y is not None or sample_weight is not None:
                raise InvalidOptionError(
                    "a dataset has its targets and weights in it: y and sample_weight are not given"
                )
            self._adapter = None
            count = self._dataset.cardinality()
            self.cardinality = int(count.numpy() if hasattr(count, "numpy") else count)
        else:
            self._adapter = private.get_data_adapter(
                x, y, sample_weight, batch_size=batch_size or 32, shuffle=shuffle, class_weight=class_weight
            )
            known = self._adapter.num_batches
            self.cardinality = UNKNOWN if known is None else int(known)
            left = self._adapter.partial_batch_size
            if left and self.cardinality > 0:
                self.cardinality -= 1
                self._partial = (int(left), int(self._adapter.batch_size))
        self._type: BatchType | None = None
        self._running: Iterator[Any] | None = None

    def check_whole(self, steps: int | None) -> None:
        """Raise if the last batch is smaller than others, and the steps of an epoch do not leave it out.

        Raises:
            BatchSizeError: It is.
        """
        if self._partial is not None and (steps is None or steps > self.cardinality):
            left, size = self._partial
            raise BatchSizeError(
                f"the last batch has {counted(left, 'sample')}, the others have {size}",
                because="programs are compiled for batches of one shape",
                remedy="a batch size that divides the samples, padding, or batch(..., drop_remainder=True)",
            )

    @property
    def type(self) -> BatchType:
        """Type of every batch.

        Raises:
            InvalidOptionError: There is no batch.
        """
        if self._type is None:
            first = next(self._fresh(peek=True), None)
            if first is None:
                raise InvalidOptionError("the data has no batch", remedy="at least one batch of samples")
            self._type = BatchType.of(first)
        return self._type

    def _fresh(self, *, peek: bool = False) -> Iterator[Any]:
        """Batches from the start."""
        if self._dataset is not None:
            read = getattr(self._dataset, "as_numpy_iterator", None)
            for element in self._dataset if read is None else read():
                yield self._converted(element, weigh=True)
        else:
            assert self._adapter is not None
            if not peek:
                self._adapter.on_epoch_begin()
            for batch in self._adapter.get_jax_iterator():
                yield self._converted(batch, weigh=False)

    def _converted(self, element: Any, *, weigh: bool) -> Any:
        if isinstance(element, list):
            element = tuple(element)
        if weigh and self._class_weight is not None:
            x, y, weight = private.unpack(element)
            if weight is not None:
                raise InvalidOptionError("class_weight cannot be given beside weights of samples")
            element = (x, y, private.class_weights(narrowed(y), dict(self._class_weight)))
        return jax.tree.map(lambda a: narrowed(a.numpy() if hasattr(a, "numpy") else a), element)

    def epoch(self, *, goes_on: bool) -> Iterator[Any]:
        """Batches of one epoch; with ``goes_on`` those after the last epoch's, and from the start after the last one.

        Raises:
            BatchSizeError: A batch of another shape than the first.
        """
        first = None
        if goes_on and self._running is not None:
            first = next(self._running, None)
        if first is None:
            self._running = self._fresh()
        wanted = self.type.key
        while True:
            assert self._running is not None
            batch, first = first if first is not None else next(self._running, None), None
            if batch is None:
                self._running = None
                if self._adapter is not None:
                    self._adapter.on_epoch_end()
                return
            found = BatchType.of(batch)
            if found.key != wanted:
                raise BatchSizeError(
                    f"a batch has arrays {_shapes(found)}, the first one has {_shapes(self.type)}",
                    because="programs are compiled for batches of one shape",
                    remedy="batch(..., drop_remainder=True), or padding",
                )
            yield batch


def _shapes(batch: BatchType) -> str:
    return ", ".join(f"{t.dtype}{list(t.shape)}" for t in jax.tree.leaves(batch.tree))


@dataclass(frozen=True)
class Steps:
    """Steps of an epoch, and of one execution.

    Attributes:
        epoch: Steps of an epoch, on each replica.
        execution: Steps of an execution.
        replicas: Batches of a step.
    """

    epoch: int
    execution: int
    replicas: int

    @staticmethod
    def of(
        batches: Batches, *, wanted: int | None, per_execution: int, accumulation: int, replicas: int, what: str
    ) -> Steps:
        """The steps that batches make.

        Args:
            batches: The data.
            wanted: Steps of an epoch that the user asks for, on each replica.
            per_execution: Steps of an execution that the user asks for.
            accumulation: Steps of an update.
            replicas: Replicas, each of which takes a batch in a step.
            what: Name of the argument that asks for steps.

        Raises:
            InvalidOptionError: Numbers that do not divide each other, or data of unknown size without steps.
            SessionError: An execution of a part of an update.
        """
        known = batches.cardinality
        if wanted is None:
            if known in (INFINITE, UNKNOWN):
                size = "is infinite" if known == INFINITE else "has an unknown size"
                raise InvalidOptionError(
                    f"the dataset {size}, and {what} is not given", remedy=f"{what}=..., or take(n)"
                )
            batches.check_whole(None)
            wanted, left = divmod(known, replicas)
            if left:
                warnings.warn(
                    f"{counted(left, 'batch')} of {known} at the end of each epoch are not used: a step takes "
                    f"{replicas}, one for each replica",
                    DroppedDataWarning,
                    stacklevel=4,
                )
        else:
            batches.check_whole(wanted * replicas)
            if known >= 0 and wanted * replicas > known and known < wanted * replicas:
                raise InvalidOptionError(
                    f"{what} asks for {counted(wanted * replicas, 'batch')}, the data has {known}",
                    remedy="repeat() the dataset, or fewer steps",
                )
        if wanted < 1:
            raise InvalidOptionError(
                f"the data has {counted(max(known, 0), 'batch')}, too few for one step on "
                f"{counted(replicas, 'replica')}",
                remedy="repeat() the dataset, or smaller batches",
            )
        execution = per_execution
        if execution > wanted:
            warnings.warn(
                f"steps_per_execution is {execution}, and an epoch has {counted(wanted, 'step')}: so has an execution",
                UserWarning,
                stacklevel=4,
            )
            execution = wanted
        if wanted % execution:
            raise InvalidOptionError(
                f"steps_per_execution, {execution}, does not divide the {counted(wanted, 'step')} of an epoch",
                because=f"the data has {known} batches, for {counted(replicas, 'replica')}" if known >= 0 else None,
                remedy=f"steps_per_execution={np.gcd(wanted, execution)}, or another {what}",
            )
        if execution % accumulation:
            raise SessionError(
                f"an execution has {counted(execution, 'step')}, which is no multiple of the {accumulation} that make "
                "one update",
                remedy="change steps_per_execution, or gradient_accumulation_steps_per_replica",
            )
        return Steps(wanted, execution, replicas)
