"""The meaning of a host kernel: its nests evaluated in NumPy, every point of a nest at once. Slow and plain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.errors import TensorError
from abele.expr.numpy_meaning import as_integers
from abele.expr.operation import COMBINES, TABLE, identity
from abele.kernels.nest.ir import (
    Affine,
    Apply,
    Cast,
    Const,
    Expr,
    HostKernel,
    Index,
    Load,
    Nest,
    QuickRandom,
    Random,
    Rounded,
    RowLoad,
    Store,
    common_type,
    result_type,
)
from abele.llvm.random import hash_u32, quick_hash_u32
from abele.numerics import ElementType, f32, i32, to_device, to_host, u32
from abele.numerics.narrow import round_at_random, round_to_nearest
from abele.words import counted


def evaluate(kernel: HostKernel, arrays: Sequence[Array], *, precise: bool = False) -> list[Array]:
    """The outputs of ``kernel``.

    Args:
        kernel: Kernel to compute.
        arrays: The inputs, of the kernel's shapes and types; then, where outputs are accumulated into or set only in
            part, the outputs' previous contents (zeros otherwise).
        precise: Keep floating-point operands and arithmetic in 64 bits throughout, as an oracle for tests.

    Raises:
        TensorError: The number or the shapes of ``arrays`` do not fit.
    """
    if not kernel.num_inputs <= len(arrays) <= kernel.num_inputs + kernel.num_outputs:
        raise TensorError(f"kernel takes {counted(kernel.num_inputs, 'input')}, got {len(arrays)} arrays")
    state = _Evaluator(kernel, precise)
    for number, array in enumerate(arrays):
        if np.shape(array) != kernel.shapes[number]:
            got, wanted = list(np.shape(array)), list(kernel.shapes[number])
            raise TensorError(f"operand %{number} has shape {got}, the kernel wants {wanted}")
        state.operands[number][...] = array
    for nest in kernel.nests:
        state.run(nest)
    return [state.operands[number] for number in kernel.outputs]


class _Evaluator:
    """Operand values while the nests of one kernel run."""

    def __init__(self, kernel: HostKernel, precise: bool) -> None:
        self.types = kernel.types
        self.float = np.dtype(np.float64 if precise else np.float32)
        self.precise = precise
        self.operands = [
            np.zeros(shape, self.float if precise and type_.is_float else type_.np)
            for shape, type_ in zip(kernel.shapes, kernel.types, strict=True)
        ]

    def run(self, nest: Nest) -> None:
        """Evaluate all stores of ``nest``, loads before stores."""
        sizes = [extent for _, extent in nest.dims]
        grid = dict(zip(nest.extents, np.ix_(*map(np.arange, sizes)), strict=True))
        values = [np.broadcast_to(self.value(s.value, grid, self.types[s.operand]), sizes) for s in nest.stores]
        for store, value in zip(nest.stores, values, strict=True):
            self.store(store, value, grid)

    def store(self, store: Store, value: Array, grid: dict[str, Array]) -> None:
        """Combine ``value``, one element per point of ``grid``, into the target of ``store``."""
        target = self.operands[store.operand]
        index = [np.broadcast_to(_position(a, grid), value.shape) for a in store.index]
        if store.row is not None:
            index[store.row.dim] = np.broadcast_to(self.value(store.row.value, grid, i32).astype(np.int64), value.shape)
        inside = _inside(index, target.shape, value.shape)
        where = tuple(i[inside] for i in index)
        if store.combine == "set":
            kept = value[inside] if where else value
            target[where] = kept if self.precise else as_stored(kept, self.types[store.operand], target.dtype)
            return
        if store.row is not None and store.accumulate and not self.precise:
            combine_in_order(target, where, value[inside], store.combine)
            return
        wide = self.widened(target, self.types[store.operand]).copy()
        if not store.accumulate:
            wide[...] = identity(store.combine, wide.dtype)
        # `ufunc.at` combines every point, also several for one element, which plain indexing would drop.
        if where:
            COMBINES[store.combine].at(wide, where, value[inside])
        else:
            wide = COMBINES[store.combine].reduce(value, axis=None, initial=wide)
        target[...] = wide if self.precise else as_stored(wide, self.types[store.operand], target.dtype)

    def value(self, expression: Expr, grid: dict[str, Array], wanted: ElementType) -> Array:
        """``expression`` at every point of ``grid``; a constant takes the type ``wanted``."""
        match expression:
            case Const():
                return np.asarray(expression.value, self.dtype(wanted))
            case Load():
                return self.load(expression, grid)
            case RowLoad():
                return self.row_load(expression, grid)
            case Index():
                return np.asarray(_position(expression.affine, grid), np.int32)
            case Random():
                key = self.operands[expression.seed]
                hashed = quick_hash_u32 if isinstance(expression, QuickRandom) else hash_u32
                return hashed(key[0], key[1], expression.modifier, _position(expression.index, grid))
            case Cast():
                return self.cast(expression, grid)
            case Rounded():
                return self.rounded(expression, grid)
            case Apply():
                return self.apply(expression, grid)
        raise TypeError(f"{expression!r} is no kernel expression")

    def load(self, load: Load, grid: dict[str, Array]) -> Array:
        """The loaded elements, widened, with the fill value outside."""
        source = self.operands[load.operand]
        index = [np.asarray(_position(a, grid)) for a in load.index]
        clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(index, source.shape, strict=True))
        value = self.widened(source[clipped], self.types[load.operand])
        if load.fill is None:
            return value
        return np.where(_inside(index, source.shape, value.shape), value, value.dtype.type(load.fill))

    def row_load(self, load: RowLoad, grid: dict[str, Array]) -> Array:
        """The loaded elements, widened, with the fill value where there is no such row."""
        source = self.operands[load.operand]
        index = [np.asarray(_position(a, grid)) for a in load.index]
        index[load.dim] = self.value(load.row, grid, i32).astype(np.int64)
        clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(index, source.shape, strict=True))
        value = self.widened(source[clipped], self.types[load.operand])
        return np.where(_inside(index, source.shape, value.shape), value, value.dtype.type(load.fill))

    def cast(self, cast: Cast, grid: dict[str, Array]) -> Array:
        """The argument in the wanted type, rounded through 16 bits where that is the type."""
        source = f32 if isinstance(cast.arg, Const) and cast.type.is_float else result_type(cast.arg, self.types)
        value = self.value(cast.arg, grid, source)
        if cast.type.is_narrow and not self.precise:
            return np.asarray(to_host(to_device(value, cast.type), cast.type), np.float32)
        wanted = self.dtype(cast.type)
        if value.dtype.kind == "f" and wanted.kind in "iu":
            value = as_integers(value, wanted)
        is_cut = cast.type.kind in ("int", "uint") and cast.type.bits < 32
        return (value.astype(cast.type.np) if is_cut else value).astype(wanted)

    def rounded(self, part: Rounded, grid: dict[str, Array]) -> Array:
        """The argument rounded as a store would, and widened again."""
        value = self.value(part.arg, grid, f32)
        if self.precise:
            return value
        if part.word is None:
            return round_to_nearest(value, part.type, saturate=part.saturates).astype(np.float32)
        value, words = np.broadcast_arrays(value, self.value(part.word, grid, u32))
        return round_at_random(value, part.type, words, saturate=part.saturates).astype(np.float32)

    def apply(self, expression: Apply, grid: dict[str, Array]) -> Array:
        """The operation on the values of its arguments."""
        op, args = TABLE[expression.op], expression.args
        first: tuple[Array, ...] = ()
        if op.name == "select":
            first = (self.value(args[0], grid, result_type(args[0], self.types)),)
            args = args[1:]
        common = common_type(args, self.types, at=expression)
        with np.errstate(all="ignore"):
            return np.asarray(op.meaning(*first, *(self.value(a, grid, common) for a in args)))

    def widened(self, elements: Array, type_: ElementType) -> Array:
        """Elements in their compute type."""
        return np.asarray(to_host(elements, type_), self.dtype(type_))

    def dtype(self, type_: ElementType) -> np.dtype[np.generic]:
        """The NumPy dtype in which elements of ``type_`` are computed with."""
        kind = result_type(Const(0, type_), ())
        return self.float if kind == f32 else kind.np


def as_stored(values: Array, type_: ElementType, dtype: np.dtype[np.generic]) -> Array:
    """Computed values as elements of ``type_``, which an array of ``dtype`` holds."""
    return to_device(values, type_) if type_.is_quarter else values.astype(dtype)


def combine_in_order(target: Array, where: tuple[Array, ...], values: Array, combine: str) -> None:
    """Combine ``values`` into elements of ``target``, one after the other, each time rounded as the element is stored.

    All that are the first for their element go at once, then all that are the second, and so on.
    """
    if not values.size:
        return
    place = np.ravel_multi_index(where, target.shape)
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    first = np.searchsorted(ordered, ordered)
    turn = np.empty_like(place)
    turn[order] = np.arange(len(place)) - first
    flat = target.reshape(-1)
    for number in range(int(turn.max()) + 1):
        now = turn == number
        wide = flat[place[now]].astype(values.dtype)
        flat[place[now]] = COMBINES[combine](wide, values[now]).astype(target.dtype)


def _position(index: Affine, grid: dict[str, Array]) -> Array:
    return np.asarray(sum((grid[d] * c for d, c in index.terms), np.int64(index.const)))


def _inside(index: Sequence[Array], shape: Sequence[int], points: Sequence[int]) -> Array:
    inside = np.ones(points, np.bool_)
    for position, extent in zip(index, shape, strict=True):
        inside &= (position >= 0) & (position < extent)
    return inside
