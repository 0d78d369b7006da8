"""``tf.data.Dataset``: elements by TensorFlow's names, over NumPy arrays.

What reads many batches takes :meth:`Dataset.as_numpy_iterator`, :attr:`Dataset.element_spec` and
:meth:`Dataset.cardinality`; nothing of it needs a tensor.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import jax.numpy as jnp
import numpy as np

from abele.errors import SessionError, TypeMismatchError

from ..dtypes import as_dtype
from ..randomness import host_generator
from ..shapes import TensorShape, TensorSpec
from ..structure import flatten, map_structure, pack
from ..tensors import StringTensor, host_array, numpy_of, tensor_of
from .batching import Batched, PaddedBatched, Unbatched, Windowed, batched_by_length, only_element
from .mapping import (
    ElementFunction,
    Filtered,
    Interleaved,
    MappedElements,
    TakenWhile,
    leaf_values,
    reduced,
    sampled,
    spec_of,
)
from .nodes import (
    INFINITE,
    CachedElements,
    Chained,
    InvalidArgumentError,
    MadeElements,
    Node,
    Numbers,
    Repeated,
    RowsOfArrays,
    Shuffled,
    SomeElements,
    Zipped,
    every_element,
)
from .options import DatasetOptions
from .rows import ElementRows

AUTOTUNE = -1
"""Leaves a number of calls or of elements to the library; nothing runs ahead here, so that it makes no difference."""
_CYCLE = 16
"""Datasets that ``interleave`` opens at once if it is not told how many."""


class Dataset:
    """Elements of one structure: tensors, or tuples and dicts of tensors.

    Args:
        node: Source of the elements.
        options: Options of the dataset.
    """

    def __init__(self, node: Node, options: DatasetOptions | None = None) -> None:
        self.node = node
        self._options = options or DatasetOptions()

    # Sources

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Dataset:
        """The rows of tensors: [rows, ...] each.

        Raises:
            InvalidArgumentError: They have different numbers of rows, or one is a scalar.
        """
        arrays = [_held(leaf) for leaf in flatten(tensors, lists=False)]
        if not arrays or any(array.ndim == 0 for array in arrays):
            raise InvalidArgumentError(
                "from_tensor_slices of a scalar" if arrays else "from_tensor_slices of an empty structure",
                remedy="tf.data.Dataset.from_tensors",
            )
        rows = [len(array) for array in arrays]
        if len(set(rows)) > 1:
            raise InvalidArgumentError(f"from_tensor_slices of tensors of {rows} rows", remedy="give all as many rows")
        specs = [TensorSpec(array.shape[1:], array.dtype) for array in arrays]
        return Dataset(RowsOfArrays(ElementRows.of(arrays), pack(tensors, specs, lists=False)))

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> Dataset:
        """One element: the tensors."""
        arrays = [_held(leaf)[None] for leaf in flatten(tensors, lists=False)]
        specs = [TensorSpec(array.shape[1:], array.dtype) for array in arrays]
        return Dataset(RowsOfArrays(ElementRows.of(arrays), pack(tensors, specs, lists=False)))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Any = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Dataset:
        """Values of a generator.

        Args:
            generator: Called for every iteration.
            output_types: The structure of an element, with an element type per leaf.
            output_shapes: The same with a shape per leaf; unknown if left out.
            args: Tensors that the generator is called with, as NumPy arrays.
            output_signature: The structure of an element with a ``tf.TensorSpec`` per leaf, instead of both.

        Raises:
            TypeMismatchError: Neither types nor a signature is given, or no generator.
        """
        if not callable(generator):
            raise TypeMismatchError(
                f"from_generator needs a function that gives an iterator, not a {type(generator).__name__}",
                remedy="from_generator(lambda: values, ...)",
            )
        if output_signature is None:
            if output_types is None:
                raise TypeMismatchError("from_generator needs output_signature, or output_types")
            if output_shapes is None:
                output_shapes = map_structure(lambda _: TensorShape(None), output_types, lists=False)
            leaves = flatten(output_types, lists=False)
            shapes = _shape_leaves(output_types, output_shapes)
            specs = [TensorSpec(shape, dtype) for shape, dtype in zip(shapes, leaves, strict=True)]
            output_signature = pack(output_types, specs, lists=False)
        given = [numpy_of(tensor_of(arg)) for arg in args or ()]
        return Dataset(MadeElements(lambda: _generated(generator(*given), output_signature), output_signature))

    @staticmethod
    def range(*args: Any, output_type: Any = "int64", name: str | None = None) -> Dataset:
        """Whole numbers, as Python's ``range`` gives them."""
        numbers = range(*(int(numpy_of(arg)) for arg in args))
        return Dataset(Numbers(numbers.start, numbers.stop, numbers.step, as_dtype(output_type).name))

    @staticmethod
    def counter(start: int = 0, step: int = 1, dtype: Any = "int64", name: str | None = None) -> Dataset:
        """Whole numbers without end."""
        return Dataset(Numbers(start, None, step, as_dtype(dtype).name))

    @staticmethod
    def random(seed: int | None = None, rerandomize_each_iteration: bool = False, name: str | None = None) -> Dataset:
        """Random whole numbers from 0 to 2³² - 1 without end."""

        def numbers() -> Iterator[list[Any]]:
            generator = host_generator(seed, 0)
            while True:
                yield [np.int64(generator.integers(0, 1 << 32))]

        return Dataset(MadeElements(numbers, TensorSpec((), "int64"), INFINITE))

    @staticmethod
    def list_files(
        file_pattern: Any, shuffle: bool | None = None, seed: int | None = None, name: str | None = None
    ) -> Dataset:
        """The paths of files whose names match patterns.

        Raises:
            InvalidArgumentError: There is none.
        """
        patterns = np.ravel(host_array(file_pattern))
        files = sorted(found for pattern in patterns for found in glob.glob(os.fsdecode(pattern)))
        if not files:
            raise InvalidArgumentError(f"no file matches {', '.join(os.fsdecode(pattern) for pattern in patterns)}")
        found = Dataset.from_tensor_slices(np.array(files, dtype=object))
        return found if shuffle is False else found.shuffle(len(files), seed=seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """Elements of datasets side by side, until one of them ends: ``zip((a, b))``, ``zip(a, b)``."""
        given = datasets if datasets is not None else args[0] if len(args) == 1 else args
        leaves = flatten(given)
        wrong = next((leaf for leaf in leaves if not isinstance(leaf, Dataset)), None)
        if wrong is not None:
            raise TypeMismatchError(f"zip() takes datasets, not a {type(wrong).__name__}")
        given = tuple(given) if isinstance(given, list) else given
        return Dataset(Zipped([leaf.node for leaf in leaves], given))

    @staticmethod
    def sample_from_datasets(
        datasets: list[Dataset],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """Elements of datasets drawn at random."""
        nodes = [dataset.node for dataset in datasets]
        shares = None if weights is None else np.asarray(numpy_of(weights)).tolist()
        return Dataset(MadeElements(lambda: sampled(nodes, shares, seed, not stop_on_empty_dataset), nodes[0].spec))

    @staticmethod
    def choose_from_datasets(
        datasets: list[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = True
    ) -> Dataset:
        """Elements of datasets in the order that another gives by their numbers."""

        def chosen() -> Iterator[list[Any]]:
            readers = [every_element(dataset.node) for dataset in datasets]
            for (number,) in every_element(choice_dataset.node):
                leaves = next(readers[int(number)], None)
                if leaves is not None:
                    yield leaves
                elif stop_on_empty_dataset:
                    return

        return Dataset(MadeElements(chosen, datasets[0].node.spec))

    # Reading

    @property
    def element_spec(self) -> Any:
        """The structure of an element with a ``tf.TensorSpec`` per leaf; dims that vary are None."""
        return self.node.spec

    def cardinality(self, name: str | None = None) -> Any:
        """The number of elements: a scalar, -1 if there are infinitely many, -2 if it is not known."""
        return jnp.asarray(self.node.count())

    def as_numpy_iterator(self) -> Iterator[Any]:
        """The elements with NumPy arrays, scalars and bytes as leaves."""
        spec = self.node.spec if self.node.count() != 0 else None
        for leaves in every_element(self.node):
            yield pack(spec, leaves, lists=False)

    def get_single_element(self, name: str | None = None) -> Any:
        """The one element of a dataset of one.

        Raises:
            InvalidArgumentError: It has none, or several.
        """
        return _as_tensors(self.node.spec, only_element(self.node))

    def reduce(self, initial_state: Any, reduce_func: Callable[..., Any], name: str | None = None) -> Any:
        """Go through all elements with a state: ``reduce_func(state, element)`` gives the next."""
        return reduced(self.node, initial_state, reduce_func)

    def __iter__(self) -> DatasetIterator:
        return DatasetIterator(self)

    def __len__(self) -> int:
        count = self.node.count()
        if count < 0:
            kind = "infinitely many elements" if count == INFINITE else "a number of elements that is not known"
            raise TypeMismatchError(f"len() of a dataset with {kind}", remedy="cardinality()")
        return count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} element_spec={self.element_spec}>"

    # Order and number of elements

    def shuffle(
        self,
        buffer_size: Any,
        seed: Any = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> Dataset:
        """Elements in the order of a buffer of ``buffer_size`` from which they are drawn at random.

        Args:
            buffer_size: Elements of the buffer; the whole dataset for an order that is uniform.
            seed: Makes the order reproducible.
            reshuffle_each_iteration: False if each iteration has the same order.
        """
        size = _positive(self.node.count() if isinstance(buffer_size, float) else buffer_size, "shuffle(buffer_size)")
        again = reshuffle_each_iteration is not False
        fixed = None if again or seed is not None else int(host_generator(None, 0).integers(1 << 31))
        chosen = fixed if seed is None else int(numpy_of(seed))
        return self._over(Shuffled(self.node, size, lambda number: host_generator(chosen, number), again))

    def repeat(self, count: Any = None, name: str | None = None) -> Dataset:
        """All elements ``count`` times, for ever by default."""
        times = None if count is None or int(numpy_of(count)) < 0 else int(numpy_of(count))
        return self._over(Repeated(self.node, times))

    def take(self, count: Any, name: str | None = None) -> Dataset:
        """The first ``count`` elements; all for -1."""
        first = int(numpy_of(count))
        return self._over(SomeElements(self.node, 0, None if first < 0 else first))

    def skip(self, count: Any, name: str | None = None) -> Dataset:
        """All but the first ``count`` elements; none for -1."""
        first = int(numpy_of(count))
        return self._over(SomeElements(self.node, 0, 0) if first < 0 else SomeElements(self.node, first, None))

    def shard(self, num_shards: Any, index: Any, name: str | None = None) -> Dataset:
        """Every ``num_shards``-th element from the ``index``-th on."""
        shards, first = _positive(num_shards, "shard(num_shards)"), int(numpy_of(index))
        if not 0 <= first < shards:
            raise InvalidArgumentError(f"shard({shards}, {first})", because=f"shards are numbered 0 to {shards - 1}")
        return self._over(SomeElements(self.node, first, None, shards))

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """These elements, then those of another dataset of the same structure."""
        return self._over(Chained(self.node, dataset.node))

    def cache(self, filename: Any = "", name: str | None = None) -> Dataset:
        """Elements made once, in the first complete iteration; kept in memory, also with a file."""
        return self._over(CachedElements(self.node))

    def snapshot(self, path: Any = "", **_: Any) -> Dataset:
        """The same as :meth:`cache`."""
        return self.cache(path)

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Pairs of a number, from ``start`` on, and an element."""
        return self._over(Zipped([Numbers(start, None), self.node], (0, 0)))

    def prefetch(self, buffer_size: Any = AUTOTUNE, name: str | None = None) -> Dataset:
        """The same elements: the queues of the device read ahead."""
        return self._over(self.node)

    # Functions of elements

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
        **_: Any,
    ) -> Dataset:
        """Results of a function of each element.

        Args:
            map_func: Takes the parts of an element that is a tuple, else the element; gives tensors.
        """
        return self._over(MappedElements(self.node, map_func))

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Elements of which a function is true."""
        return self._over(Filtered(self.node, predicate))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Elements before the first of which a function is false."""
        return self._over(TakenWhile(self.node, predicate))

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """The elements of the datasets that a function makes of elements, one dataset after the other."""
        return self._over(Interleaved(self.node, map_func, 1, 1 << 30))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: Any = None,
        block_length: Any = None,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Elements of the datasets that a function makes of elements, ``block_length`` of each in turn."""
        cycle = _CYCLE if cycle_length is None or int(cycle_length) == AUTOTUNE else int(cycle_length)
        return self._over(
            Interleaved(
                self.node,
                map_func,
                _positive(cycle, "interleave(cycle_length)"),
                _positive(1 if block_length is None else block_length, "interleave(block_length)"),
            )
        )

    def scan(self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """Results of a function of a state and an element, which gives the next state and a result."""

        def results() -> Iterator[list[Any]]:
            state = map_structure(tensor_of, initial_state)
            for element in self:
                state, result = scan_func(state, element)
                yield leaf_values(result)

        def first() -> Any:
            for element in self:
                return spec_of(scan_func(map_structure(tensor_of, initial_state), element)[1])
            raise InvalidArgumentError("scan() over a dataset without elements")

        return self._over(MadeElements(results, first(), self.node.count()))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Result of a function of the dataset."""
        return transformation_func(self)

    def unique(self, name: str | None = None) -> Dataset:
        """Each element once."""

        def once() -> Iterator[list[Any]]:
            seen: set[bytes] = set()
            for leaves in every_element(self.node):
                key = leaves[0] if isinstance(leaves[0], bytes) else np.asarray(leaves[0]).tobytes()
                if key not in seen:
                    seen.add(key)
                    yield leaves

        return self._over(MadeElements(once, self.node.spec))

    # Batches

    def batch(
        self,
        batch_size: Any,
        drop_remainder: bool = False,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Consecutive elements stacked: [batch_size, ...]; the last may have fewer unless ``drop_remainder``."""
        return self._over(Batched(self.node, _positive(batch_size, "batch(batch_size)"), bool(drop_remainder)))

    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Consecutive elements padded to one shape and stacked.

        Args:
            batch_size: Elements of a batch.
            padded_shapes: The structure of an element with a shape per leaf; None pads to the largest of the batch.
            padding_values: The same with a value per leaf; 0 and "" by default.
            drop_remainder: True if a last batch of fewer is left out.
        """
        spec = self.node.spec
        leaves = flatten(spec, lists=False)
        largest = [TensorShape([None] * len(leaf.shape)) for leaf in leaves]
        shapes = largest if padded_shapes is None else _shape_leaves(spec, padded_shapes)
        if padded_shapes is not None and any(shape.rank is None for shape in shapes):
            raise InvalidArgumentError("padded_batch to a shape of unknown rank")
        values = _padding_values(leaves, padding_values)
        size = _positive(batch_size, "padded_batch(batch_size)")
        return self._over(PaddedBatched(self.node, size, shapes, values, bool(drop_remainder)))

    def unbatch(self, name: str | None = None) -> Dataset:
        """The rows of elements as elements."""
        return self._over(Unbatched(self.node))

    def rebatch(self, batch_size: Any, drop_remainder: bool = False, name: str | None = None) -> Dataset:
        """ElementRows of elements stacked to batches of another size."""
        return self.unbatch().batch(batch_size, drop_remainder)

    def window(
        self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: bool = False, name: str | None = None
    ) -> Dataset:
        """Consecutive elements as datasets, one per leaf.

        Args:
            size: Elements of a window.
            shift: Elements from a window to the next, ``size`` by default.
            stride: Elements from one of a window to the next.
            drop_remainder: True if windows of fewer are left out.
        """
        length = _positive(size, "window(size)")
        node = Windowed(
            self.node,
            length,
            shift=_positive(length if shift is None else shift, "window(shift)"),
            stride=_positive(stride, "window(stride)"),
            whole=bool(drop_remainder),
            dataset=Dataset,
        )
        return self._over(node)

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: list[int],
        bucket_batch_sizes: list[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Elements of like length padded and stacked."""
        if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
            raise InvalidArgumentError(
                f"{len(bucket_boundaries)} boundaries make {len(bucket_boundaries) + 1} buckets, "
                f"not {len(bucket_batch_sizes)}"
            )
        length = ElementFunction(element_length_func, self.node.spec)
        padded = self.padded_batch(1, padded_shapes, padding_values).node
        assert isinstance(padded, PaddedBatched)

        def lengths(leaves: list[Any]) -> int:
            return int(numpy_of(length.call(leaves)))

        def batches() -> Iterator[list[Any]]:
            gathered = batched_by_length(
                self.node, lengths, bucket_boundaries, bucket_batch_sizes, whole=drop_remainder
            )
            for rows in gathered:
                yield padded.stacked(rows)

        del pad_to_bucket_boundary, no_padding
        return self._over(MadeElements(batches, padded.spec))

    # Options

    def options(self) -> DatasetOptions:
        """Options of the dataset."""
        return self._options

    def with_options(self, options: DatasetOptions, name: str | None = None) -> Dataset:
        """The dataset with other options: they are kept, and make no difference to the elements."""
        return Dataset(self.node, options)

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Dataset:
        """Elements without those that raise an error while they are made."""
        raise SessionError(
            "ignore_errors() is not there: an element that cannot be made stops the program",
            remedy="catch the error in the function that makes it, and filter() what is left",
        )

    def _over(self, node: Node) -> Dataset:
        return Dataset(node, self._options)


_readers: list[Callable[..., Any]] = []


@contextmanager
def reads_of(reader: Callable[..., Any]) -> Iterator[None]:
    """Let a function of the iterator and of a function that reads it give the elements of iterators."""
    _readers.append(reader)
    try:
        yield
    finally:
        _readers.pop()


class DatasetIterator:
    """The elements of a dataset, one after the other, as tensors.

    Attributes:
        dataset: The dataset.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._elements: Iterator[list[Any]] = every_element(dataset.node)

    @property
    def element_spec(self) -> Any:
        """The structure of an element."""
        return self.dataset.element_spec

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        def draw() -> Any:
            return _as_tensors(self.dataset.node.spec, next(self._elements))

        return _readers[-1](self, draw) if _readers else draw()

    @contextmanager
    def rehearsed(self) -> Iterator[Callable[[], None]]:
        """Let elements that are read inside be read again afterwards.

        Yields:
            A function; after it was called they are not.
        """
        read: list[list[Any]] = []
        rest, done = self._elements, False

        def noted() -> Iterator[list[Any]]:
            for leaves in rest:
                read.append(leaves)
                yield leaves

        def keep() -> None:
            nonlocal done
            done = True

        self._elements = noted()
        try:
            yield keep
        finally:
            self._elements = rest if done else chain(read, rest)

    def get_next(self, name: str | None = None) -> Any:
        """The next element.

        Raises:
            OutOfRangeError: There is none.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError("End of sequence", remedy="repeat(), or a for loop over the dataset") from None


class OutOfRangeError(SessionError, IndexError):
    """An iterator at the end of its dataset."""


def _as_tensors(spec: Any, leaves: list[Any]) -> Any:
    made = [leaf if isinstance(leaf, Dataset) else _tensor(leaf) for leaf in leaves]
    return pack(spec, made, lists=False)


def _tensor(leaf: Any) -> Any:
    return StringTensor(leaf) if isinstance(leaf, bytes) else tensor_of(leaf)


def _held(value: Any) -> Any:
    """A tensor's array, which nobody else writes."""
    array = host_array(value)
    return np.array(array) if array is value and array.flags.writeable else array


def _shape_leaves(structure: Any, shapes: Any) -> list[TensorShape]:
    """A shape per leaf: a single one, a list of dims and a ``TensorShape`` are shapes, a tuple is a structure."""
    if not isinstance(structure, tuple | dict):
        return [TensorShape(shapes)]
    if isinstance(structure, dict):
        pairs = [(structure[key], shapes[key]) for key in sorted(structure)]
    else:
        pairs = list(zip(structure, shapes, strict=True))
    return [leaf for part, shape in pairs for leaf in _shape_leaves(part, shape)]


def _padding_values(leaves: list[Any], values: Any) -> list[Any]:
    if values is None:
        return [b"" if leaf.dtype.name == "string" else 0 for leaf in leaves]
    given = flatten(values, lists=False)
    given = given * len(leaves) if len(given) == 1 else given
    if len(given) != len(leaves):
        raise InvalidArgumentError(f"{len(given)} padding values for elements of {len(leaves)} tensors")
    zeros = _padding_values(leaves, None)
    return [zero if value is None else numpy_of(value) for value, zero in zip(given, zeros, strict=True)]


def _positive(value: Any, what: str) -> int:
    number = int(numpy_of(value))
    if number < 1:
        raise InvalidArgumentError(f"{what} is {number}, at least 1 is needed")
    return number


def _generated(values: Iterable[Any], signature: Any) -> Iterator[list[Any]]:
    specs = flatten(signature, lists=False)
    for value in values:
        found = flatten(
            tuple(value) if isinstance(signature, tuple) and isinstance(value, list) else value, lists=False
        )
        if len(found) != len(specs):
            raise TypeMismatchError(
                f"the generator gave {len(found)} tensors, output_signature has {len(specs)}",
                because=f"output_signature is {signature}",
            )
        yield [_checked(leaf, spec) for leaf, spec in zip(found, specs, strict=True)]


def _checked(value: Any, spec: TensorSpec) -> Any:
    array = host_array(value)
    wanted = spec.dtype.dtype
    if array.dtype != wanted:
        if (array.dtype.kind == "O") != (wanted.kind == "O"):
            raise TypeMismatchError(f"the generator gave a tensor of {array.dtype}, and not of {spec.dtype.name}")
        array = host_array(value, spec.dtype)
    if not spec.shape.is_compatible_with(array.shape):
        raise InvalidArgumentError(
            f"the generator gave a tensor of shape {array.shape}", because=f"its signature has {spec.shape}"
        )
    return array[()] if array.ndim == 0 else array
