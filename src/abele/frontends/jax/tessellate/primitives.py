"""JAX's side of placement: primitives that say where rows lie, with their meaning on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from abele.arrays import Array


class Contents:
    """An array of NumPy as a parameter of an equation: equal to another of the same type and bits."""

    def __init__(self, array: Array) -> None:
        self.array = np.ascontiguousarray(array).reshape(np.shape(array))
        self._key = (self.array.dtype.str, self.array.shape, self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contents) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{self.array.dtype}{list(self.array.shape)}"


def _primitive(name: str, meaning: Callable[..., Any], *, several: bool = False) -> Primitive:
    """A primitive whose meaning is a function of JAX."""
    made = Primitive(name)
    made.multiple_results = several
    made.def_impl(meaning)

    def abstract(*avals: Any, **params: Any) -> Any:
        shapes = jax.eval_shape(partial(meaning, **params), *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals))
        return [ShapedArray(s.shape, s.dtype) for s in shapes] if several else ShapedArray(shapes.shape, shapes.dtype)

    made.def_abstract_eval(abstract)
    mlir.register_lowering(made, mlir.lower_fun(meaning, multiple_results=several))
    return made


def _sharded(array: Any, *, tiles: tuple[int, ...]) -> Any:
    return jnp.asarray(array)


def _replicated(array: Any, *, tiles: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(array, (len(tiles), *jnp.shape(array)))


def _constant(*, data: Contents, tiles: tuple[int, ...], replicated: bool) -> Any:
    return _replicated(data.array, tiles=tiles) if replicated else jnp.asarray(data.array)


def _gathered(array: Any, *, held: Any, indices: tuple[int, ...], tiles: tuple[int, ...], copy: bool) -> Any:
    return jnp.asarray(array)[np.asarray(indices, np.int32)]


def _together(*arrays: Any) -> list[Any]:
    return [jnp.asarray(a) for a in arrays]


def _counted(*arrays: Any, tiles: tuple[int, ...], sync: bool) -> list[Any]:
    return [*_together(*arrays), jnp.zeros((len(tiles), 2), jnp.uint32)]


tile_put_sharded_p = _primitive("tile_put_sharded", _sharded)
tile_put_replicated_p = _primitive("tile_put_replicated", _replicated)
tile_constant_p = _primitive("tile_constant", _constant)
tile_gather_p = _primitive("tile_gather", _gathered)
tile_data_barrier_p = _primitive("tile_data_barrier", _together, several=True)
tile_cycles_p = _primitive("tile_cycles", _counted, several=True)


# --- derivatives ------------------------------------------------------------------------------------------------------


def _linear(made: Primitive, transposed: Callable[..., Any]) -> None:
    def derivative(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        (tangent,) = tangents
        moved = ad.Zero(tangent.aval) if type(tangent) is ad.Zero else made.bind(tangent, **params)
        out = made.bind(*primals, **params)
        return out, ad.Zero(jax.core.ShapedArray(out.shape, out.dtype)) if type(moved) is ad.Zero else moved

    def transpose(cotangent: Any, operand: Any, **params: Any) -> tuple[Any]:
        return (None if type(cotangent) is ad.Zero else transposed(cotangent, operand.aval, **params),)

    ad.primitive_jvps[made] = derivative
    ad.primitive_transposes[made] = transpose


_linear(tile_put_sharded_p, lambda cotangent, aval, **_: cotangent)
_linear(tile_put_replicated_p, lambda cotangent, aval, **_: cotangent.sum(0))
_linear(
    tile_gather_p,
    lambda cotangent, aval, indices, **_: jnp.zeros(aval.shape, aval.dtype).at[np.asarray(indices)].add(cotangent),
)


def _passing(made: Primitive, extra: int) -> None:
    """Let a primitive that gives its operands, and then some whole numbers, pass on tangents as they are."""

    def derivative(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = made.bind(*primals, **params)
        others = [ad.Zero(jax.core.ShapedArray(o.shape, jax.dtypes.float0)) for o in out[len(primals) :]]
        return out, [*tangents, *others]

    ad.primitive_jvps[made] = derivative


_passing(tile_data_barrier_p, 0)
_passing(tile_cycles_p, 1)


# --- batches ----------------------------------------------------------------------------------------------------------

# A dimension of samples goes behind that of tiles, so that each row has its part of all samples.


def _behind_tiles(made: Primitive) -> None:
    def batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        moved = [a if d is None else jnp.moveaxis(a, d, 1) for a, d in zip(args, dims, strict=True)]
        out = made.bind(*moved, **params)
        if not made.multiple_results:
            return out, 1
        places = [None if d is None else 1 for d in dims]
        return out, places + [None] * (len(out) - len(places))

    batching.primitive_batchers[made] = batch


for _made in (tile_put_sharded_p, tile_gather_p, tile_data_barrier_p, tile_cycles_p):
    _behind_tiles(_made)


def _batch_replicated(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, int]:
    return tile_put_replicated_p.bind(jnp.moveaxis(args[0], dims[0], 0), **params), 1


batching.primitive_batchers[tile_put_replicated_p] = _batch_replicated
