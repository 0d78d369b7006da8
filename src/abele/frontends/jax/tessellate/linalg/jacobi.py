"""Eigenvalues of symmetric matrices by Jacobi's rotations, N / 2 pairs of columns at a time.

A tile holds the two columns of a pair. A step finds the rotation that makes the pair's common element zero and turns
the columns; then every tile turns the rows, of which it needs all N / 2 angles; then columns change partners, as teams
do in a tournament: after N − 1 steps each column has met each other one, and all are back where they began.

Columns carry their numbers, so that all steps are the same and the machine has one of them in a loop: 1,023 steps of a
matrix of 1,024 rows take as much code as 3 of one of 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from abele.arrays import Array
from abele.errors import TensorError
from abele.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    tile_constant_sharded,
    tile_gather,
    tile_put_replicated,
    tile_put_sharded,
)
from abele.frontends.jax.tessellate.lax import rotation2d_p
from abele.frontends.jax.tessellate.linalg.reflections import FIRST_TILE, LAST_TILE, _square
from abele.frontends.jax.tessellate.mapping import (
    create_ipu_tile_primitive,
    get_ipu_tile_primitive_translation,
    primitive_clone,
    register_ipu_tile_primitive,
    tile_map,
)
from abele.frontends.jax.tessellate.types import user_line

LARGEST = 1024
"""Rows of the largest matrix: N / 2 tiles for A and as many for its vectors, of 1,471."""

jacobi_update_first_step_p = create_ipu_tile_primitive(
    "jacobi_update_first_step",
    "tessellate::JacobiStep<float>",
    inputs=["pcol", "qcol"],
    outputs={"cs": ShapedArray((4,), np.dtype(np.float32)), "pcol_updated": 0, "qcol_updated": 1},
)
"""Cosine, sine and numbers of a pair of columns, and the columns turned."""

jacobi_update_second_step_p = create_ipu_tile_primitive(
    "jacobi_update_second_step",
    "tessellate::JacobiRows<float>",
    inputs=["cs", "pcol", "qcol"],
    outputs={"pcol_updated": 1, "qcol_updated": 2},
)
"""Columns whose rows are turned in pairs."""

jacobi_update_eigenvectors_p = primitive_clone(rotation2d_p, "jacobi_update_eigenvectors")
"""Two rows of eigenvectors turned by the angle of their columns."""
register_ipu_tile_primitive(jacobi_update_eigenvectors_p, get_ipu_tile_primitive_translation(rotation2d_p)[1])


@jacobi_update_first_step_p.def_impl
def _first_step(pcol: Any, qcol: Any) -> Any:
    p, q = pcol[0].astype(jnp.int32) + 2, qcol[0].astype(jnp.int32) + 2
    app, aqq, apq = pcol[p], qcol[q], pcol[q]
    tau = (aqq - app) / (2 * jnp.where(apq == 0, 1, apq))
    root = jnp.sqrt(1 + tau * tau)
    t = jnp.where(tau >= 0, 1 / (tau + root), 1 / (tau - root))
    c = jnp.where(apq == 0, 1, 1 / jnp.sqrt(1 + t * t))
    s = jnp.where(apq == 0, 0, t * c)
    scale = 1.5 - 0.5 * (c * c + s * s)
    c, s = c * scale, s * scale
    turned = c * pcol - s * qcol, s * pcol + c * qcol
    return jnp.stack([c, s, pcol[0], qcol[0]]), *(
        jnp.concatenate([old[:2], new[2:]]) for old, new in zip((pcol, qcol), turned, strict=True)
    )


@jacobi_update_second_step_p.def_impl
def _second_step(cs: Any, pcol: Any, qcol: Any) -> Any:
    c, s, p, q = jnp.moveaxis(cs.reshape((-1, 4)), 1, 0)
    p, q = p.astype(jnp.int32) + 2, q.astype(jnp.int32) + 2

    def turned(column: Any) -> Any:
        return column.at[p].set(c * column[p] - s * column[q]).at[q].set(s * column[p] + c * column[q])

    return turned(pcol), turned(qcol)


# --- partners ---------------------------------------------------------------------------------------------------------


def jacobi_initial_rotation_set(N: int) -> Array:
    """The first pairs, [N / 2, 2]: neighbours."""
    return np.arange(N, dtype=np.uint32).reshape((-1, 2))


def jacobi_next_rotation_set(rot: Array) -> Array:
    """The next pairs after some: all but the first column move on by one place, around the table."""
    top, bottom = rot[:, 0], rot[:, 1]
    if len(rot) < 2:
        return rot.copy()
    return np.stack([np.concatenate([top[:1], bottom[:1], top[1:-1]]), np.concatenate([bottom[1:], top[-1:]])], axis=1)


def jacobi_sort_rotation_set(rot: Array) -> Array:
    """Pairs with the smaller number first."""
    return np.sort(rot, axis=1)


def tile_rotate_columns(
    pcols: TileShardedArray, qcols: TileShardedArray, rotset: Array
) -> tuple[TileShardedArray, TileShardedArray]:
    """Columns with their next partners.

    Args:
        pcols: Of each pair the column of the smaller number.
        qcols: Of each pair the other one, on the same tiles.
        rotset: The pairs, [N / 2, 2], in the order in which they change; see :func:`jacobi_next_rotation_set`.

    Returns:
        The columns of the next pairs, again with the smaller number first.
    """
    now, then = jacobi_sort_rotation_set(rotset), jacobi_sort_rotation_set(jacobi_next_rotation_set(rotset))
    place = np.argsort(now.T.reshape(-1), kind="stable")
    columns = TileShardedArray.concatenate([pcols, qcols])
    first, second = (tile_gather(columns, place[then[:, side]], pcols.tiles) for side in (0, 1))
    return first, second


# --- eigenvalues ------------------------------------------------------------------------------------------------------


Pair = tuple[TileShardedArray, TileShardedArray]


def _step(a: Pair, v: Pair) -> tuple[Pair, Pair]:
    """All pairs turned, and columns with their next partners."""
    (pcols, qcols), (pvecs, qvecs) = a, v
    cs, pcols, qcols = tile_map(jacobi_update_first_step_p, pcols, qcols)
    pcols, qcols = tile_map(jacobi_update_second_step_p, tile_put_replicated(cs.array, pcols.tiles), pcols, qcols)
    pvecs, qvecs = tile_map(jacobi_update_eigenvectors_p, tile_put_sharded(cs.array, pvecs.tiles), pvecs, qvecs)
    return _next_partners(pcols, qcols), _next_partners(pvecs, qvecs)


def _next_partners(pcols: TileShardedArray, qcols: TileShardedArray) -> Pair:
    """Columns of the next pairs: the same move for each step."""
    half = pcols.num_tiles
    then = jacobi_next_rotation_set(np.arange(2 * half).reshape((2, half)).T)
    columns = TileShardedArray.concatenate([pcols, qcols])
    first, second = (tile_gather(columns, then[:, side], pcols.tiles) for side in (0, 1))
    return first, second


def ipu_jacobi_eigh(x: Any, num_iters: int = 1, initial_guess: Any = None) -> tuple[TileShardedArray, TileShardedArray]:
    """Diagonal form of a symmetric matrix, by sweeps of Jacobi's rotations.

    Args:
        x: float32 [N, N], symmetric; N is even and at most 1,024.
        num_iters: Number of sweeps. Six make the rest vanish in float32 for most matrices.
        initial_guess: Vectors to begin with, [N, N] in columns.

    Returns:
        The matrix that is diagonal but for a rest, and the eigenvectors as rows; each a row on half as many tiles as
        it has, which hold two.

    Raises:
        TensorError: The matrix is not square, its size is odd, or it is too large.
    """
    num = _square("ipu_jacobi_eigh", x)
    if num % 2 or num > LARGEST:
        raise TensorError(
            f"ipu_jacobi_eigh of {num} rows",
            at=user_line(),
            because="two columns lie on each tile" if num % 2 else f"there are tiles for {LARGEST:,} rows",
            remedy="pad the matrix with a zero row and column" if num % 2 else "jnp.linalg.eigh",
        )
    half = num // 2
    assert FIRST_TILE + num - 1 <= LAST_TILE
    a_tiles = tuple(range(FIRST_TILE, FIRST_TILE + half))
    v_tiles = tuple(range(FIRST_TILE + half, FIRST_TILE + num))
    rot = jacobi_initial_rotation_set(num)
    matrix = jnp.asarray(getattr(x, "array", x))
    if initial_guess is None:
        eye = np.eye(num, dtype=np.float32)
        vectors = [tile_constant_sharded(eye[rot[:, side]], v_tiles) for side in (0, 1)]
    else:
        guess = getattr(initial_guess, "array", initial_guess)
        matrix = guess.T @ matrix @ guess
        vectors = [tile_gather(jnp.transpose(guess), rot[:, side], v_tiles) for side in (0, 1)]
    numbers = np.zeros((num, 2), np.float32)
    numbers[:, 0] = np.arange(num)
    numbered = jnp.concatenate([numbers, matrix.astype(jnp.float32)], axis=1)
    columns = [tile_gather(numbered, rot[:, side], a_tiles) for side in (0, 1)]
    carried = ((columns[0], columns[1]), (vectors[0], vectors[1]))
    steps = num_iters * max(1, num - 1)
    a, v = jax.lax.fori_loop(0, steps, lambda _, c: _step(*c), carried)
    return _in_order(a, rot)[:, 2:], _in_order(v, rot)


def _in_order(pair: Sequence[TileShardedArray], rot: Array) -> TileShardedArray:
    """Rows of pairs in the order of their numbers, each where it is."""
    both, place = TileShardedArray.concatenate(list(pair)), np.argsort(rot.T.reshape(-1))
    return tile_gather(both, place, [both.tiles[n] for n in place])


def ipu_eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = False,
    sort_eigenvalues: bool = True,
    num_iters: int = 1,
    initial_guess: Any = None,
) -> tuple[Any, Any]:
    """Eigenvectors and eigenvalues of a symmetric matrix, in the order of ``jax.lax.linalg.eigh``.

    Args:
        x: float32 [N, N], symmetric; N is even and at most 1,024.
        lower: Ignored: all of the matrix is read.
        symmetrize_input: True to take the mean of the matrix and its transpose.
        sort_eigenvalues: True for ascending eigenvalues.
        num_iters: Number of sweeps of :func:`ipu_jacobi_eigh`.
        initial_guess: Vectors to begin with, in columns.

    Returns:
        Eigenvectors in columns, [N, N], and eigenvalues, [N].

    Raises:
        TensorError: As of :func:`ipu_jacobi_eigh`.
    """
    matrix = getattr(x, "array", x)
    if symmetrize_input:
        matrix = (matrix + jnp.transpose(matrix)) / 2
    a, vectors = ipu_jacobi_eigh(matrix, num_iters, initial_guess)
    eye = np.eye(a.num_tiles, dtype=np.float32)
    values, rows = jnp.sum(a.array * eye, axis=1), vectors.array
    if sort_eigenvalues:
        order = jnp.argsort(values)
        values, rows = values[order], rows[order]
    return jnp.transpose(rows), values
