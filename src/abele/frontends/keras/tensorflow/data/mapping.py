"""Functions of elements: traced once and run on many elements at a time, or called element by element.

TensorFlow makes a graph of a function once. Here JAX traces it, with a leading dim for the elements of a block
(``vmap``), and 1,024 images are cast and scaled in one call. Functions that need values - they read files, handle
strings, index by a mask - are called with the tensors of each element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import jax
import keras
import numpy as np

from ..randomness import draw_key, drawn_from, host_generator
from ..shapes import TensorSpec
from ..structure import flatten, map_structure, pack
from ..tensors import StringTensor, is_string, numpy_of, tensor_of
from .batching import DatasetSpec
from .nodes import INFINITE, UNKNOWN, InvalidArgumentError, Node, Over, common_spec, every_element
from .rows import ElementRows, RowReader, is_ragged, join

_MOST_BYTES = 1 << 23
"""Bytes of elements that a function is run on at once."""
_MOST_ROWS = 1 << 10
_MOST_FILLED = 16
"""A chunk is filled up to this many times its elements before another size is compiled."""
_UNKNOWN_DIMS = (3, 5)
"""Two sizes that stand for an unknown dim while shapes are found; dims that differ then are unknown, too."""


@contextmanager
def _on_the_host() -> Iterator[None]:
    """Compute at once and with 64 bits, also where the program is traced or a tape records it."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        yield


class _NeedsValuesError(Exception):
    """A function that cannot be traced."""


class ElementFunction:
    """A function of the elements of a node.

    Args:
        function: Takes the parts of an element that is a tuple, else the element.
        spec: The structure of an element.
    """

    def __init__(self, function: Callable[..., Any], spec: Any) -> None:
        self._function, self._spec = function, spec
        self._result: Any = None
        self._traceable: bool | None = None
        self._key: Any = None
        self._done = 0
        self._sizes: set[int] = set()
        self._one = jax.jit(self._traced)
        self._many = jax.jit(jax.vmap(self._traced, in_axes=(None, 0, *[0] * len(flatten(spec, lists=False)))))

    def __call__(self, rows: ElementRows) -> ElementRows:
        """The results for some elements, of one structure."""
        if self._traceable is not False and not any(map(_is_opaque, rows.arrays)):
            try:
                return self._run(rows)
            except Exception:
                if self._traceable:
                    raise
                self._traceable = False
        results = [self.call(rows.element(number)) for number in range(rows.size)]
        columns = [ElementRows.one(leaf_values(result)) for result in results]
        self._result = results[0]
        return join(columns)

    def call(self, leaves: list[Any]) -> Any:
        """The result for one element, as the function gives it."""
        with _on_the_host():
            element = pack(self._spec, [_tensor_leaf(leaf) for leaf in leaves], lists=False)
            return self._function(*element) if type(element) is tuple else self._function(element)

    def result_spec(self) -> Any:
        """The structure of a result, None where the function has to be called for it."""
        leaves = flatten(self._spec, lists=False)
        if self._traceable is False or any(_is_opaque_spec(leaf) for leaf in leaves):
            return None
        try:
            with _on_the_host():
                first, second = (self._shapes(leaves, dim) for dim in _UNKNOWN_DIMS)
        except Exception:
            self._traceable = False
            return None
        dims = [
            TensorSpec([a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)], one.dtype)
            for one, other in zip(first, second, strict=True)
        ]
        return pack(self._result, dims, lists=False)

    def template(self) -> Any:
        """A result, for its structure."""
        return self._result

    def _shapes(self, leaves: list[Any], dim: int) -> Any:
        known = [
            jax.ShapeDtypeStruct([dim if size is None else size for size in leaf.shape], leaf.dtype.dtype)
            for leaf in leaves
        ]
        return jax.eval_shape(self._traced, jax.random.key(0), np.int32(0), *known)

    def _traced(self, key: Any, number: Any, *leaves: Any) -> list[Any]:
        element = pack(self._spec, list(leaves), lists=False)
        scope = keras.StatelessScope()
        with drawn_from(jax.random.fold_in(key, number)), scope:
            result = self._function(*element) if type(element) is tuple else self._function(element)
        if scope.state_mapping:
            raise _NeedsValuesError("it changes variables")
        self._result = result if type(result) is not list else tensor_of(result)
        found = flatten(self._result, lists=False)
        if any(is_string(leaf) or not _is_numeric(leaf) for leaf in found):
            raise _NeedsValuesError("it gives something else than numbers")
        return [tensor_of(leaf) for leaf in found]

    def _run(self, rows: ElementRows) -> ElementRows:
        with _on_the_host():
            if self._key is None:
                self._key = draw_key()
            if rows.size == 1:
                made = self._one(self._key, np.int32(self._done), *[column[0] for column in rows.gathered()])
                columns = [np.asarray(leaf)[None] for leaf in made]
            else:
                columns = self._chunks(rows)
        self._done += rows.size
        self._traceable = True
        return ElementRows.of(columns)

    def _chunks(self, rows: ElementRows) -> list[Any]:
        """Run on a power of two of elements at a time, so that few sizes are compiled; the last chunk is filled up."""
        row_bytes = sum(array[:1].nbytes for array in rows.arrays)
        most = max(1, min(_MOST_ROWS, _MOST_BYTES // max(row_bytes, 1)))
        size = 1 << min(rows.size - 1, most - 1).bit_length()
        compiled = min((known for known in self._sizes if known >= size), default=size)
        size = compiled if compiled <= _MOST_FILLED * size else size
        self._sizes.add(size)
        made = []
        for start in range(0, rows.size, size):
            numbers = np.minimum(np.arange(start, start + size), rows.size - 1)
            piece = rows.take(numbers) if start + size > rows.size else rows.cut(start, start + size)
            results = self._many(self._key, np.int32(self._done) + numbers.astype(np.int32), *piece.gathered())
            made.append([np.asarray(leaf)[: rows.size - start] for leaf in results])
        return [np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*made, strict=True)]


def _is_opaque(array: Any) -> bool:
    return bool(array.dtype == object)


def _is_opaque_spec(leaf: Any) -> bool:
    return isinstance(leaf, DatasetSpec) or leaf.dtype.name == "string" or leaf.shape.rank is None


def _is_numeric(leaf: Any) -> bool:
    return hasattr(leaf, "__jax_array__") or isinstance(
        leaf, jax.Array | np.ndarray | np.generic | int | float | bool | list
    )


def _tensor_leaf(leaf: Any) -> Any:
    if hasattr(leaf, "element_spec"):
        return leaf
    return StringTensor(leaf) if isinstance(leaf, bytes) else tensor_of(leaf)


def leaf_values(result: Any) -> list[Any]:
    """The leaves of a result as they lie in rows: arrays, scalars of NumPy, bytes, datasets."""
    return [leaf if hasattr(leaf, "element_spec") else _host_leaf(leaf) for leaf in flatten(result, lists=False)]


def _host_leaf(leaf: Any) -> Any:
    found = numpy_of(leaf)
    return found[()] if isinstance(found, np.ndarray) and found.ndim == 0 else found


def spec_of(result: Any) -> Any:
    """The structure of an element that is there."""
    return map_structure(_leaf_spec, result, lists=False)


def _leaf_spec(leaf: Any) -> Any:
    if hasattr(leaf, "element_spec"):
        return DatasetSpec(leaf.element_spec)
    found = numpy_of(leaf)
    return TensorSpec((), "string") if isinstance(found, bytes) else TensorSpec(found.shape, found.dtype)


def _with_unknown_size(leaf: Any, sizes: set[int]) -> Any:
    if isinstance(leaf, TensorSpec) and leaf.shape and leaf.shape[0] in sizes:
        return TensorSpec((None, *leaf.shape[1:]), leaf.dtype)
    return leaf


class MappedElements(Over):
    """Results of a function of each element."""

    def __init__(self, source: Node, function: Callable[..., Any]) -> None:
        super().__init__(source)
        self._function = ElementFunction(function, source.spec)
        self._found: Any = None

    @property
    def spec(self) -> Any:
        """The structure of a result: traced, or what the first two have in common."""
        if self._found is None:
            self._found = self._function.result_spec()
        if self._found is None:
            first = list(islice(every_element(self.source), 2))
            if not first:
                raise InvalidArgumentError(
                    "the element_spec of a dataset without elements, mapped by a function that needs values"
                )
            specs = [spec_of(self._function.call(leaves)) for leaves in first]
            common = map_structure(common_spec, specs[0], specs[-1], lists=False)
            sizes = self._sizes_that_vary(first[0])
            self._found = map_structure(lambda leaf: _with_unknown_size(leaf, sizes), common, lists=False)
        return self._found

    def _sizes_that_vary(self, leaves: list[Any]) -> set[int]:
        """Leading dims of an element that other elements, such as a last batch, may not have."""
        specs = zip(leaves, flatten(self.source.spec, lists=False), strict=True)
        return {
            len(leaf) for leaf, spec in specs if isinstance(spec, TensorSpec) and spec.shape and spec.shape[0] is None
        }

    def blocks(self) -> Iterator[ElementRows]:
        """A block of results for each block of elements."""
        for block in self.source.blocks():
            start = 0
            while start < block.size:
                piece = block.cut(start, start + _MOST_ROWS)
                yield self._function(piece)
                start += _MOST_ROWS


class Filtered(Over):
    """Elements of which a function is true."""

    def __init__(self, source: Node, predicate: Callable[..., Any]) -> None:
        super().__init__(source)
        self._predicate = ElementFunction(predicate, source.spec)

    def count(self) -> int:
        """Not known."""
        return UNKNOWN

    def blocks(self) -> Iterator[ElementRows]:
        """The blocks of the source without some elements."""
        for block in self.source.blocks():
            start = 0
            while start < block.size:
                piece = block.cut(start, start + _MOST_ROWS)
                kept = np.flatnonzero(self._truths(piece))
                if len(kept):
                    yield piece.take(kept) if len(kept) < piece.size else piece
                start += _MOST_ROWS

    def _truths(self, rows: ElementRows) -> Any:
        (truths,) = self._predicate(rows).gathered()
        if truths.ndim != 1 or (truths.dtype == object and is_ragged(truths)):
            raise InvalidArgumentError("the predicate of filter() gives a scalar per element")
        return truths.astype(bool)


class TakenWhile(Filtered):
    """Elements before the first of which a function is false."""

    def blocks(self) -> Iterator[ElementRows]:
        """The blocks of the source up to that element."""
        for block in self.source.blocks():
            false = np.flatnonzero(~self._truths(block))
            if len(false):
                yield block.cut(0, int(false[0]))
                return
            yield block


class Interleaved(Over):
    """Elements of the datasets that a function makes of elements, some of each in turn.

    Args:
        source: The elements.
        function: Makes a dataset of each.
        cycle: Datasets that are open at once.
        block: Elements of one before it is another's turn.
    """

    def __init__(self, source: Node, function: Callable[..., Any], cycle: int, block: int) -> None:
        super().__init__(source)
        self._function = ElementFunction(function, source.spec)
        self._cycle, self._block = cycle, block
        self._found: Any = None

    @property
    def spec(self) -> Any:
        """The structure of the elements of the first dataset."""
        if self._found is None:
            first = next(every_element(self.source), None)
            if first is None:
                raise InvalidArgumentError("the element_spec of interleave() over a dataset without elements")
            self._found = self._opened(first).spec
        return self._found

    def count(self) -> int:
        """Not known, or infinite as the source is."""
        return INFINITE if self.source.count() == INFINITE else UNKNOWN

    def blocks(self) -> Iterator[ElementRows]:
        """A turn after the other, as TensorFlow takes them."""
        inputs = every_element(self.source)
        slots: list[RowReader | None] = [None] * self._cycle
        more, slot = True, 0
        while more or any(reader is not None for reader in slots):
            reader = slots[slot]
            if reader is None and more:
                leaves = next(inputs, None)
                more = leaves is not None
                if leaves is not None:
                    reader = slots[slot] = RowReader(self._opened(leaves).blocks())
            if reader is not None:
                missing = self._block
                while missing and (rows := reader.some(missing)) is not None:
                    yield rows
                    missing -= rows.size
                if missing:
                    slots[slot] = None
            slot = (slot + 1) % self._cycle

    def _opened(self, leaves: list[Any]) -> Node:
        made = self._function.call(leaves)
        node = getattr(made, "node", None)
        if not isinstance(node, Node):
            raise InvalidArgumentError(
                f"the function of interleave() or flat_map() gave a {type(made).__name__}",
                remedy="tf.data.Dataset.from_tensors(value), or map() for functions that give tensors",
            )
        return node


def reduced(node: Node, state: Any, function: Callable[..., Any]) -> Any:
    """Go through all elements with a state.

    Args:
        node: The elements.
        state: The first state.
        function: Takes the state and an element; gives the next state.
    """
    with _on_the_host():
        return _reduced(node, map_structure(tensor_of, state), function)


def _reduced(node: Node, state: Any, function: Callable[..., Any]) -> Any:
    compiled: Any = jax.jit(function)
    for leaves in every_element(node):
        element = pack(node.spec, [_tensor_leaf(leaf) for leaf in leaves], lists=False)
        try:
            state = compiled(state, element)
        except Exception:
            if compiled is function:
                raise
            compiled = function
            state = function(state, element)
    return state


def sampled(nodes: list[Node], weights: list[float] | None, seed: int | None, repeat: bool) -> Iterator[list[Any]]:
    """Elements of nodes drawn at random; until all have ended, or the first if ``repeat`` is False."""
    generator = host_generator(seed, 0)
    shares = np.full(len(nodes), 1.0) if weights is None else np.asarray(weights, float)
    readers = [every_element(node) for node in nodes]
    while shares.any():
        chosen = int(generator.choice(len(nodes), p=shares / shares.sum()))
        leaves = next(readers[chosen], None)
        if leaves is not None:
            yield leaves
        elif repeat:
            shares[chosen] = 0.0
        else:
            return
