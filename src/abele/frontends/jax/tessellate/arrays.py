"""Arrays whose rows lie on tiles: row i of the first dimension in one piece on ``tiles[i]``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.tree_util import register_pytree_node_class

from abele.counts import is_whole
from abele.errors import TensorError, TensorIndexError, TypeMismatchError
from abele.frontends.jax.tessellate import primitives
from abele.frontends.jax.tessellate.types import Shape, as_device_array, user_line
from abele.words import counted

Index = int | slice | None


def as_tiles(tiles: Iterable[int]) -> tuple[int, ...]:
    """Tiles as whole numbers.

    Raises:
        TensorError: One is negative, or no whole number.
    """
    found = tuple(tiles)
    wrong = [t for t in found if not is_whole(t) or t < 0]
    if wrong:
        raise TensorError(f"{wrong[0]!r} is no tile", at=user_line(), remedy="tiles are numbered from 0")
    return tuple(int(t) for t in found)


def _items(key: Any, num_dimensions: int) -> tuple[Any, ...]:
    """Index of each of the first dimensions, without an ellipsis."""
    items = key if isinstance(key, tuple) else (key,)
    at = next((n for n, item in enumerate(items) if item is Ellipsis), None)
    if at is None:
        return items
    missing = num_dimensions - sum(item is not None for item in items) + 1
    return (*items[:at], *[slice(None)] * missing, *items[at + 1 :])


def check_tile_array_multi_slice(slices: Index | tuple[Index, ...], shape: Sequence[int]) -> bool:
    """True if slices leave each row of an array in one piece.

    Args:
        slices: Index of each of the first dimensions, or of the first one alone; that is the one of tiles.
        shape: Shape of the array.
    """
    slices = _items(slices, len(shape))
    given = [s for s in slices if s is not None]
    if (slices and slices[0] is None) or len(given) > len(shape):
        return False
    if not all(isinstance(s, (int, np.integer, slice)) for s in given):
        return False
    chosen: list[range | int] = [
        range(extent)[s] if isinstance(s, slice) else range(extent)[int(s)]
        for s, extent in zip(given[1:], shape[1:], strict=False)
    ]
    counts = [len(c) if isinstance(c, range) else 1 for c in chosen]
    if any(isinstance(c, range) and len(c) > 1 and c.step != 1 for c in chosen):
        return False
    # Elements follow each other if nothing but one index is chosen before the first dimension that is cut.
    cut = [n for n, (count, extent) in enumerate(zip(counts, shape[1:], strict=False)) if count != extent]
    return not cut or all(count <= 1 for count in counts[: cut[-1]])


@register_pytree_node_class
@dataclass(frozen=True, eq=False)
class TileShardedArray:
    """An array with a row on each of some tiles.

    Attributes:
        array: The rows, as an array of JAX or NumPy, or what stands for one while JAX traces.
        tiles: Tile of each row. A tile may have several.

    Raises:
        TensorError: There is no tile for each row.
    """

    array: Any
    tiles: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", as_tiles(self.tiles))
        if not hasattr(self.array, "shape") or not hasattr(self.array, "dtype"):
            object.__setattr__(self, "array", as_device_array(self.array))
        if not len(self.array.shape) or self.array.shape[0] != len(self.tiles):
            raise TensorError(
                f"an array of shape {tuple(self.array.shape)} on {counted(len(self.tiles), 'tile')}",
                at=user_line(),
                because="each tile has one row of the first dimension",
                remedy="give as many tiles as the array has rows",
            )

    # --- pytree -------------------------------------------------------------------------------------------------------

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, ...]]:
        """The array, and the tiles, which are static."""
        return (self.array,), self.tiles

    @classmethod
    def tree_unflatten(cls, tiles: tuple[int, ...], children: Sequence[Any]) -> TileShardedArray:
        """An array of what JAX put in its place, which may be no array."""
        made = object.__new__(cls)
        object.__setattr__(made, "array", children[0])
        object.__setattr__(made, "tiles", tiles)
        return made

    # --- properties ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Shape, tiles first."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions, that of tiles among them."""
        return len(self.array.shape)

    @property
    def size(self) -> int:
        """Number of elements on all tiles."""
        return int(np.prod(self.array.shape, dtype=np.int64))

    @property
    def aval(self) -> ShapedArray:
        """Abstract value of the array."""
        return ShapedArray(self.shape, self.dtype)

    @property
    def num_tiles(self) -> int:
        """Number of rows."""
        return len(self.tiles)

    @property
    def tile_shape(self) -> Shape:
        """Shape of a row."""
        return self.shape[1:]

    @property
    def tile_aval(self) -> ShapedArray:
        """Abstract value of a row."""
        return ShapedArray(self.tile_shape, self.dtype)

    @property
    def device_array(self) -> Any:
        """The array as JAX has it."""
        return self.array

    def __len__(self) -> int:
        return self.num_tiles

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.array, dtype)

    def __repr__(self) -> str:
        return f"TileShardedArray({self.array!r}, tiles={self.tiles})"

    # --- views --------------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> TileShardedArray:
        """Rows, or a part of each row that is in one piece.

        Raises:
            TensorError: The parts of a row would not follow each other in memory.
            TensorIndexError: There is no such row, or no such part.
        """
        items = _items(key, self.ndim)
        first = items[0] if items else slice(None)
        try:
            stays = check_tile_array_multi_slice(items, self.shape)
            if isinstance(first, (int, np.integer)):  # One tile is still a dimension.
                number = range(self.num_tiles)[int(first)]
                first = slice(number, number + 1)
        except IndexError:
            raise TensorIndexError(f"{key!r} is outside of an array of shape {self.shape}", at=user_line()) from None
        if not stays:
            raise TensorError(
                f"{key!r} of an array of shape {self.shape} on tiles",
                at=user_line(),
                because="the parts of a row would not follow each other in a tile's memory",
                remedy="cut the outermost dimension of a row, or copy with tile_put_sharded(x.array[…], tiles)",
            )
        return TileShardedArray(self.array[(first, *items[1:])], self.tiles[first])

    def reshape(self, *shape: Any) -> TileShardedArray:
        """The array in another shape with as many rows.

        Raises:
            TensorError: The first dimension is not that of tiles.
        """
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else tuple(shape)
        if not wanted or wanted[0] not in (self.num_tiles, -1):
            raise TensorError(
                f"an array on {counted(self.num_tiles, 'tile')} in the shape {wanted}",
                at=user_line(),
                remedy=f"keep the first dimension {self.num_tiles}, or tile_reshape the rows",
            )
        return self.tile_reshape(wanted[1:])

    def tile_reshape(self, *shape: Any) -> TileShardedArray:
        """The array with rows of another shape."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else tuple(shape)
        each, known = self.size // max(1, self.num_tiles), int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
        if (known != each) if -1 not in wanted else (not known or each % known):
            raise TensorError(f"rows of shape {self.tile_shape} in the shape {wanted}", at=user_line())
        return TileShardedArray(self.array.reshape((self.num_tiles, *wanted)), self.tiles)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> TileShardedArray:
        """The array without dimensions of one element; that of tiles stays.

        Raises:
            TensorError: A dimension has several elements, or is that of tiles.
        """
        if axis is None:
            axes = [n for n in range(1, self.ndim) if self.shape[n] == 1]
        else:
            axes = [a % self.ndim for a in ([axis] if isinstance(axis, (int, np.integer)) else axis)]
        wrong = [a for a in axes if a == 0 or self.shape[a] != 1]
        if wrong:
            what = "that of tiles" if wrong[0] == 0 else f"has {self.shape[wrong[0]]} elements"
            raise TensorError(f"dimension {wrong[0]} of an array of shape {self.shape} {what}", at=user_line())
        return self.tile_reshape(tuple(n for a, n in enumerate(self.shape) if a and a not in axes))

    @classmethod
    def concatenate(cls, arrays: Sequence[TileShardedArray], axis: int = 0) -> TileShardedArray:
        """Arrays after each other, with all of their tiles.

        Raises:
            TensorError: Another dimension than that of tiles.
        """
        if axis != 0:
            raise TensorError("arrays on tiles are joined along the tiles", at=user_line(), remedy="axis=0")
        check_sharded("concatenate", arrays)
        return cls(jnp.concatenate([a.array for a in arrays]), tuple(t for a in arrays for t in a.tiles))


def check_sharded(what: str, arrays: Sequence[Any]) -> None:
    """Raise unless all are arrays on tiles.

    Raises:
        TypeMismatchError: One is not.
    """
    for number, array in enumerate(arrays):
        if not isinstance(array, TileShardedArray):
            raise TypeMismatchError(
                f"{what} takes arrays on tiles; argument {number} is {type(array).__name__}",
                at=user_line(),
                remedy="tile_put_sharded(x, tiles) or tile_put_replicated(x, tiles)",
            )


# --- placing ----------------------------------------------------------------------------------------------------------


def _rows(what: str, array: Any, tiles: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    numbers, given = as_tiles(tiles), getattr(array, "array", array)
    shape = np.shape(given)
    if not shape or shape[0] != len(numbers):
        raise TensorError(
            f"{what} of an array of shape {tuple(shape)} on {counted(len(numbers), 'tile')}",
            at=user_line(),
            because="each tile gets one row of the first dimension",
            remedy="give as many tiles as the array has rows, or tile_put_replicated",
        )
    return given, numbers


def tile_put_sharded(array: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Put row i of an array on ``tiles[i]``.

    Raises:
        TensorError: There is no tile for each row.
    """
    given, numbers = _rows("tile_put_sharded", array, tiles)
    return TileShardedArray(primitives.tile_put_sharded_p.bind(_as_jax(given), tiles=numbers), numbers)


def tile_put_replicated(array: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Put all of an array on each of some tiles: a dimension of tiles comes before its own."""
    numbers = as_tiles(tiles)
    return TileShardedArray(
        primitives.tile_put_replicated_p.bind(_as_jax(getattr(array, "array", array)), tiles=numbers), numbers
    )


def tile_constant_sharded(array: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Put row i of an array of NumPy on ``tiles[i]``, as part of the program.

    Raises:
        TensorError: There is no tile for each row.
        TypeMismatchError: The array is not known when the program is made.
    """
    given, numbers = _rows("tile_constant_sharded", array, tiles)
    made = primitives.tile_constant_p.bind(data=primitives.Contents(_known(given)), tiles=numbers, replicated=False)
    return TileShardedArray(made, numbers)


def tile_constant_replicated(array: Any, tiles: Sequence[int]) -> TileShardedArray:
    """Put all of an array of NumPy on each of some tiles, as part of the program.

    Raises:
        TypeMismatchError: The array is not known when the program is made.
    """
    numbers = as_tiles(tiles)
    made = primitives.tile_constant_p.bind(data=primitives.Contents(_known(array)), tiles=numbers, replicated=True)
    return TileShardedArray(made, numbers)


def _known(array: Any) -> Any:
    if isinstance(array, jax.core.Tracer):
        raise TypeMismatchError(
            "a constant on tiles of an array that JAX traces",
            at=user_line(),
            remedy="give a NumPy array, or tile_put_sharded and tile_put_replicated",
        )
    return as_device_array(getattr(array, "array", array))


def _as_jax(array: Any) -> Any:
    return array if isinstance(array, jax.core.Tracer | jax.Array) else jnp.asarray(as_device_array(array))


def tile_gather(arr: Any, indices: Iterable[int], tiles: Sequence[int], copy: bool = False) -> TileShardedArray:
    """Put rows of an array, by number, on tiles.

    Args:
        arr: The rows; an array that is not on tiles yet does, too.
        indices: Number of the row for each tile, known when the program is made.
        tiles: Tile of each row of the result.
        copy: True to copy rows that are on their tile already; otherwise they stay.

    Raises:
        TensorError: Another number of indices than tiles, or one outside of the array.
    """
    numbers, rows = as_tiles(tiles), [int(i) for i in indices]
    held = arr.tiles if isinstance(arr, TileShardedArray) else ()
    given = _as_jax(getattr(arr, "array", arr))
    if len(rows) != len(numbers):
        raise TensorError(
            f"tile_gather of {counted(len(rows), 'index')} to {counted(len(numbers), 'tile')}", at=user_line()
        )
    wrong = [i for i in rows if not -given.shape[0] <= i < given.shape[0]]
    if wrong:
        raise TensorError(f"row {wrong[0]} of an array with {counted(given.shape[0], 'row')}", at=user_line())
    made = primitives.tile_gather_p.bind(
        given, held=held, indices=tuple(i % given.shape[0] for i in rows), tiles=numbers, copy=bool(copy)
    )
    return TileShardedArray(made, numbers)


def tile_data_barrier(*args: TileShardedArray) -> tuple[TileShardedArray, ...]:
    """Arrays, of which none is there before all of them are.

    Raises:
        TypeMismatchError: One is not on tiles.
    """
    check_sharded("tile_data_barrier", args)
    if not args:
        return ()
    made = primitives.tile_data_barrier_p.bind(*(_as_jax(a.array) for a in args))
    return tuple(TileShardedArray(v, a.tiles) for v, a in zip(made, args, strict=True))


def ipu_cycle_count(*args: TileShardedArray, sync: bool = False) -> tuple[TileShardedArray, ...]:
    """Arrays, and the cycle counter of each tile of the first when all of them are there.

    Args:
        *args: Arrays that the reading waits for.
        sync: True for a barrier of all tiles before it.

    Returns:
        The arrays, and u32[tiles, 2], low word first. On the host, where nothing counts, zeros.

    Raises:
        TypeMismatchError: One is not on tiles, or there is none.
    """
    check_sharded("ipu_cycle_count", args)
    if not args:
        raise TypeMismatchError("ipu_cycle_count reads the counters of an array's tiles", remedy="give it an array")
    *made, count = primitives.tile_cycles_p.bind(
        *(_as_jax(a.array) for a in args), tiles=args[0].tiles, sync=bool(sync)
    )
    given = tuple(TileShardedArray(v, a.tiles) for v, a in zip(made, args, strict=True))
    return (*given, TileShardedArray(count, args[0].tiles))
