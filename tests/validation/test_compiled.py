"""Bytes of code in published totals."""

from __future__ import annotations

from abele.report import Memory
from abele.validation.measure import TILE_BYTES, compiled_bytes, published_bytes


def test_compiled_bytes__solvers__count_tiles_with_vertices() -> None:
    memory = Memory.of(8, 1000, vertex_code=[0, 4, 4, 0, 8, 0, 0, 0], variables=16)
    assert compiled_bytes("cholesky", memory) == 3 * TILE_BYTES
    assert compiled_bytes("matrix_solver", memory) == 3 * TILE_BYTES


def test_compiled_bytes__other_operators__have_none() -> None:
    assert compiled_bytes("gemm", Memory.of(8, 1000, vertex_code=4)) == 0


def test_published_bytes__tools_that_compile__hold_code_and_stacks() -> None:
    memory = Memory.of(8, 1000, vertex_code=1, control_code=2, stacks=4, gaps=8, variables=16, exchange_code=32)
    assert published_bytes("fc", memory) == published_bytes("reduction", memory) == 8 * (16 + 32)
    assert {published_bytes(kind, memory) for kind in ("conv", "gemm", "oct_conv")} == {8 * (1 + 2 + 4 + 16 + 32)}
