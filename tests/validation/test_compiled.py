"""Bytes of compiled code in published totals."""

from __future__ import annotations

from abele.report import Memory
from abele.validation.measure import TILE_BYTES, compiled_bytes


def test_compiled_bytes__solvers__count_tiles_with_vertices() -> None:
    memory = Memory.of(8, 1000, vertex_code=[0, 4, 4, 0, 8, 0, 0, 0], variables=16)
    assert compiled_bytes("cholesky", memory) == 3 * TILE_BYTES
    assert compiled_bytes("matrix_solver", memory) == 3 * TILE_BYTES


def test_compiled_bytes__other_operators__have_none() -> None:
    assert compiled_bytes("gemm", Memory.of(8, 1000, vertex_code=4)) == 0
