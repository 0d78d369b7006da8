"""Orthogonal factors by Householder's reflections: QR and Hessenberg form of a square matrix.

A has a column on each of N tiles, Q a row on each of N others. A reflection takes the vector from one column's tile,
sends it to all, and then each tile works on its own column and row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from abele.errors import TensorError
from abele.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    tile_constant_replicated,
    tile_put_replicated,
    tile_put_sharded,
)
from abele.frontends.jax.tessellate.lax import scaled_sub, tile_sharded_identity
from abele.frontends.jax.tessellate.mapping import create_ipu_tile_primitive, declare_ipu_tile_primitive, tile_map
from abele.frontends.jax.tessellate.types import user_line

FIRST_TILE = 1
"""Tile of the first row: tile 0 is left to what a program has one of."""
LAST_TILE = 1471
"""Last tile of an IPU; larger matrices have several rows on a tile. Source: Bow and GC200 have 1,472 tiles."""
WORKERS = 6

dot_product1d_p = create_ipu_tile_primitive(
    "dot_product1d",
    "tessellate::DotProduct<float>",
    inputs=["x", "y"],
    outputs={"partials": ShapedArray((WORKERS,), np.dtype(np.float32))},
)
"""Partial sums, one a worker, of the product of two rows."""

qr_correction_vector_p = create_ipu_tile_primitive(
    "qr_correction_vector",
    "tessellate::Householder<float>",
    inputs=["Rcol", "sdiag"],
    outputs={"v": 0, "vrescale": ShapedArray((1,), np.dtype(np.float32))},
)
"""Reflection of a column onto the axis ``col_idx``: the vector, and 2 / |vector|².

The new head has the opposite of the sign of ``sdiag``, of which a row is one number, or the numbers of all columns; of
zero, the opposite of the head's own, as LAPACK chooses it.
"""


@declare_ipu_tile_primitive("tessellate::HouseholderUpdate<float>")
def qr_householder_row_update_p(x: Any, v: Any, w: Any, vrescale: Any, start_idx: int = 0) -> Any:
    """Row ``x`` from ``start_idx`` on reflected by the vector ``v``, of partial sums ``w`` of their product."""
    return {"out": x}


@dot_product1d_p.def_impl
def _dot_product1d(x: Any, y: Any) -> Any:
    share = -(-x.shape[0] // WORKERS)
    products = jnp.pad(jnp.ravel(x * y), (0, share * WORKERS - x.shape[0]))
    return products.reshape((WORKERS, share)).sum(1)


@qr_correction_vector_p.def_impl
def _qr_correction_vector(column: Any, sdiag: Any, *, col_idx: int) -> Any:
    below = jnp.where(jnp.arange(column.shape[0]) > col_idx, column, 0)
    head, rest = column[col_idx], jnp.sum(below**2)
    norm = jnp.sqrt(rest + head**2)
    sign = jnp.ravel(sdiag)[min(col_idx, sdiag.size - 1)]
    shift = jnp.where(jnp.where(sign == 0, head, sign) >= 0, norm, -norm)
    apart = jnp.where(head * shift < 0, shift - head, 1)
    first = jnp.where(head * shift < 0, rest / apart, head + shift)
    length = rest + first**2
    v = jnp.where(jnp.arange(column.shape[0]) == col_idx, first, below)
    return v, jnp.where(length > 0, 2 / jnp.where(length > 0, length, 1), 0).reshape((1,))


@qr_householder_row_update_p.def_impl
def _qr_householder_row_update(x: Any, v: Any, w: Any, vrescale: Any, start_idx: int = 0) -> Any:
    whole = jnp.concatenate([jnp.zeros(x.shape[0] - v.shape[0], v.dtype), v])
    return x - jnp.sum(w) * jnp.ravel(vrescale)[0] * jnp.where(jnp.arange(x.shape[0]) < start_idx, 0, whole)


def _square(what: str, x: Any) -> int:
    shape = np.shape(x)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1:
        raise TensorError(f"{what} of an array of shape {tuple(shape)}", at=user_line(), remedy="a square matrix")
    return int(shape[0])


def _tiles(first: int, num: int) -> tuple[int, ...]:
    count = LAST_TILE - FIRST_TILE + 1
    return tuple(FIRST_TILE + (first + n) % count for n in range(num))


def _reflect(rows: TileShardedArray, v: Any, vrescale: Any) -> TileShardedArray:
    """Rows reflected, each on its tile."""
    vector, scale = tile_put_replicated(v, rows.tiles), tile_put_replicated(vrescale, rows.tiles)
    partials = tile_map(dot_product1d_p, rows, vector)
    made: TileShardedArray = tile_map(qr_householder_row_update_p, rows, vector, partials, scale)
    return made


def ipu_qr(
    x: Any, xsdiag: Any = None, q_tiles: Sequence[int] | None = None, r_tiles: Sequence[int] | None = None
) -> tuple[TileShardedArray, TileShardedArray]:
    """QR factors of a square matrix.

    Args:
        x: float32 [N, N].
        xsdiag: [N]; element k of R's diagonal has the opposite of the sign of element k. By default, and of
            zeros, the factors are LAPACK's.
        q_tiles: Tile of each row of Q; by default N tiles from 1 on.
        r_tiles: Tile of each column of R; by default the next N.

    Returns:
        Q, a row on each tile, and R transposed, a column of R on each tile: ``Q @ R.T`` is ``x``.

    Raises:
        TensorError: The matrix is not square.
    """
    return ipu_qr_iterations(*ipu_qr_shard_inputs(x, xsdiag, q_tiles, r_tiles))


def ipu_qr_shard_inputs(
    x: Any, xsdiag: Any = None, q_tiles: Sequence[int] | None = None, r_tiles: Sequence[int] | None = None
) -> tuple[TileShardedArray, TileShardedArray, TileShardedArray]:
    """Arguments of :func:`ipu_qr_iterations`: the identity in rows, the matrix in columns, and the sign of each column
    on its tile; arguments as of :func:`ipu_qr`."""
    num = _square("ipu_qr", x)
    q_tiles = _tiles(0, num) if q_tiles is None else tuple(q_tiles)
    r_tiles = _tiles(num, num) if r_tiles is None else tuple(r_tiles)
    signs = jnp.zeros(num, jnp.float32) if xsdiag is None else getattr(xsdiag, "array", xsdiag)
    columns = tile_put_sharded(jnp.transpose(getattr(x, "array", x)), r_tiles)
    return tile_sharded_identity(np.float32, q_tiles), columns, tile_put_sharded(jnp.reshape(signs, (num, 1)), r_tiles)


def ipu_qr_iterations(
    q: TileShardedArray, columns: TileShardedArray, sdiag: TileShardedArray
) -> tuple[TileShardedArray, TileShardedArray]:
    """QR factors of the results of :func:`ipu_qr_shard_inputs`; results as of :func:`ipu_qr`."""
    done = []
    for k in range(columns.num_tiles - 1):
        v, vrescale = tile_map(qr_correction_vector_p, columns[:1], sdiag[k : k + 1], col_idx=k)
        q = _reflect(q, v.array[0], vrescale.array[0])
        columns = _reflect(columns, v.array[0], vrescale.array[0])
        done.append(columns[:1])
        columns = columns[1:]
    return q, TileShardedArray.concatenate([*done, columns])


def ipu_hessenberg(
    x: Any, xsdiag: Any = None, q_tiles: Sequence[int] | None = None, r_tiles: Sequence[int] | None = None
) -> tuple[TileShardedArray, TileShardedArray]:
    """Hessenberg form of a square matrix: zeros below the diagonal under the main one.

    Args:
        x: float32 [N, N].
        xsdiag: [N]; signs as of :func:`ipu_qr`.
        q_tiles: Tile of each row of Q.
        r_tiles: Tile of each column of the form.

    Returns:
        Q, a row on each tile, and the form R transposed, a column on each tile: ``Q @ R.T @ Q.T`` is ``x``.

    Raises:
        TensorError: The matrix is not square.
    """
    num = _square("ipu_hessenberg", x)
    q_tiles = _tiles(0, num) if q_tiles is None else tuple(q_tiles)
    r_tiles = _tiles(num, num) if r_tiles is None else tuple(r_tiles)
    q = tile_sharded_identity(np.float32, q_tiles)
    columns = tile_put_sharded(jnp.transpose(getattr(x, "array", x)), r_tiles)
    if xsdiag is None:
        sdiag = tile_constant_replicated(np.zeros(1, np.float32), r_tiles)
    else:
        sdiag = tile_put_sharded(jnp.reshape(getattr(xsdiag, "array", xsdiag), (num, 1)), r_tiles)
    for k in range(num - 2):
        v, vrescale = tile_map(qr_correction_vector_p, columns[k : k + 1], sdiag[k : k + 1], col_idx=k + 1)
        vector, scale = v.array[0], vrescale.array[0]
        q = _reflect(q, vector, scale)
        columns = _reflect(columns, vector, scale)
        # From the right: A v is a sum over columns, of which each then loses its part along v.
        product = jnp.sum(columns.array * vector[:, None], axis=0)
        parts = tile_put_sharded((vector * scale).reshape((num, 1)), r_tiles)
        columns = scaled_sub(columns, tile_put_replicated(product, r_tiles), parts)
    return q, columns
