"""Well-formed host kernels: every operand, dim, element and type that its nests name exists."""

from __future__ import annotations

import math

from abele.errors import TensorError, TypeMismatchError
from abele.kernels.nest.ir import (
    Affine,
    Const,
    Expr,
    HostKernel,
    Index,
    Load,
    Nest,
    Random,
    RowLoad,
    Store,
    compute_type,
    result_type,
)
from abele.numerics import u32
from abele.words import counted

_MOST = 1 << 62
"""Bound of indices and sizes, so that native code can count with 64 bits."""


def check_kernel(kernel: HostKernel) -> None:
    """Check ``kernel``.

    Raises:
        TensorError: A nest names an operand, dim or element that does not exist, or sets an element more than once.
        TypeMismatchError: An operation on types that it does not take, or a store of another type.
    """
    if len(kernel.shapes) != len(kernel.types):
        raise TensorError(f"kernel has {len(kernel.shapes)} operand shapes but {len(kernel.types)} types")
    if len(kernel.shapes) < kernel.num_inputs + kernel.num_outputs:
        wanted = f"{kernel.num_inputs} inputs and {kernel.num_outputs} outputs"
        raise TensorError(f"kernel has {wanted} but only {len(kernel.shapes)} shapes")
    _check_sizes(kernel)
    for nest in kernel.nests:
        _check_dims(nest)
        for expression in nest.expressions():
            match expression:
                case Load():
                    _check_load(kernel, nest, expression)
                case RowLoad():
                    _check_row(kernel, nest, expression, (expression.dim, expression.row))
                case Random():
                    _check_random(kernel, nest, expression)
                case Index():
                    _check_names(nest, expression.affine, at=str(expression))
        for store in nest.stores:
            _check_store(kernel, nest, store)


def mentioned_dims(expression: Expr) -> set[str]:
    """The dims in the indices of ``expression``."""
    found: set[str] = set()
    for part in expression.walk():
        match part:
            case Load() | RowLoad():
                found.update(name for position in part.index for name in position.names)
            case Index():
                found.update(part.affine.names)
            case Random():
                found.update(part.index.names)
    return found


def _check_sizes(kernel: HostKernel) -> None:
    if min(kernel.num_inputs, kernel.num_outputs) < 0:
        raise TensorError(
            f"kernel has {counted(kernel.num_inputs, 'input')} and {counted(kernel.num_outputs, 'output')}"
        )
    for number, shape in enumerate(kernel.shapes):
        if any(n < 0 for n in shape) or math.prod(shape) > _MOST:
            raise TensorError(f"%{number} has shape {list(shape)}")


def _check_dims(nest: Nest) -> None:
    names = [name for name, _ in nest.dims]
    if len(set(names)) != len(names):
        raise TensorError(f"nest names a dim twice: {', '.join(names)}", at=str(nest))
    for name, extent in nest.dims:
        if extent < 1:
            raise TensorError(f"dim {name} of a nest has extent {extent}", at=str(nest), remedy="leave empty nests out")
    points = math.prod(extent for _, extent in nest.dims)
    if points > _MOST:
        raise TensorError(f"a nest has {points} points, more than 2^62", at=str(nest))


def _check_names(nest: Nest, index: Affine, at: str) -> None:
    for name in index.names:
        if name not in nest.extents:
            raise TensorError(f"no dim {name!r} in the nest over {', '.join(nest.extents)}", at=at)
    low, high = index.bounds(nest.extents)
    if low < -_MOST or high > _MOST:
        raise TensorError(f"index {index} runs from {low} to {high}: native code counts to 2^62", at=at)


def _check_operand(kernel: HostKernel, nest: Nest, operand: int, index: tuple[Affine, ...], at: str) -> None:
    if not 0 <= operand < len(kernel.shapes):
        raise TensorError(f"no operand %{operand}: the kernel has {len(kernel.shapes)}", at=at)
    if len(index) != len(kernel.shapes[operand]):
        shape = kernel.shapes[operand]
        raise TensorError(f"%{operand} has rank {len(shape)}, indexed with {len(index)}", at=at)
    for position in index:
        _check_names(nest, position, at)


def _check_load(kernel: HostKernel, nest: Nest, load: Load) -> None:
    _check_operand(kernel, nest, load.operand, load.index, at=str(load))
    if load.fill is not None:
        return
    for position, extent in zip(load.index, kernel.shapes[load.operand], strict=True):
        low, high = position.bounds(nest.extents)
        if low < 0 or high >= extent:
            raise TensorError(
                f"index {position} of %{load.operand} runs from {low} to {high}, extent is {extent}",
                at=str(load),
                remedy="give the load a fill, or shrink the nest",
            )


def _check_row(kernel: HostKernel, nest: Nest, access: RowLoad | Store, row: tuple[int, Expr]) -> None:
    """Check an access whose place along a dim is a value."""
    at, (dim, value) = str(access), row
    _check_operand(kernel, nest, access.operand, access.index, at=at)
    shape = kernel.shapes[access.operand]
    if not 0 <= dim < len(shape):
        raise TensorError(f"no dim {dim} of %{access.operand}, which has {len(shape)}", at=at)
    found = result_type(value, kernel.types)
    if found.kind not in ("int", "uint"):
        raise TypeMismatchError(f"the place along dim {dim} of %{access.operand} is {found}, no integer", at=at)
    if isinstance(access, RowLoad):
        for number, (position, extent) in enumerate(zip(access.index, shape, strict=True)):
            low, high = position.bounds(nest.extents)
            if number != dim and (low < 0 or high >= extent):
                raise TensorError(
                    f"index {position} of %{access.operand} runs from {low} to {high}, extent is {extent}", at=at
                )


def _check_random(kernel: HostKernel, nest: Nest, random: Random) -> None:
    at = str(random)
    if not 0 <= random.seed < len(kernel.shapes):
        raise TensorError(f"no operand %{random.seed}: the kernel has {len(kernel.shapes)}", at=at)
    if kernel.shapes[random.seed] != (2,) or kernel.types[random.seed] != u32:
        got = f"{kernel.types[random.seed]}{list(kernel.shapes[random.seed])}"
        raise TensorError(f"the seed of a random expression is a u32[2], got {got}", at=at)
    _check_names(nest, random.index, at=at)


def _check_store(kernel: HostKernel, nest: Nest, store: Store) -> None:
    at = str(store)
    _check_operand(kernel, nest, store.operand, store.index, at=at)
    if store.operand in kernel.inputs:
        raise TensorError(
            f"store to %{store.operand}, which is an input", at=at, remedy="list it among the outputs too"
        )
    mentioned = {name for position in store.index for name in position.names}
    if store.row is not None:
        _check_row(kernel, nest, store, (store.row.dim, store.row.value))
        mentioned |= mentioned_dims(store.row.value)
    loose = [name for name, extent in nest.dims if extent > 1 and name not in mentioned]
    # Which of the points would win depends on the order of loops, and none is promised.
    if store.combine == "set" and loose:
        raise TensorError(
            f"set store sets each element {'·'.join(loose)} times", at=at, remedy="index these dims, or combine"
        )
    wanted = compute_type(kernel.types[store.operand])
    found = result_type(store.value, kernel.types)
    if found != wanted and not isinstance(store.value, Const):
        raise TypeMismatchError(
            f"%{store.operand} holds {kernel.types[store.operand]}, the stored value is {found}",
            at=at,
            remedy="Cast it",
        )
