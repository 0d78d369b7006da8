"""Plan of a dynamic sparse product: the grid of tiles, and the size of what each holds.

The sparse matrix is cut into x parts of its rows and y parts of its columns, the dense one into z parts of its columns.
Tile ((g · x + i) · y + j) · z + k works on cell (i, j) of group g and on dense columns k. A cell's values are dealt out
in equal parts to its z tiles, in *buckets* of one size for all tiles, patterns and cells.

Example: 100 × 200 elements in a grid of 4 × 5 × 1 are cells of 25 × 40. With 2,000 values a cell has 100 of them on
average; a bucket has room for 130 values at the default oversize of 0.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.numerics import ElementType, f16
from abele.poplibs.popsparse.dynamic.costs import WORKERS
from abele.poplibs.popsparse.dynamic.options import DynamicOptions
from abele.poplibs.popsparse.dynamic.params import DynamicFullyConnectedParams
from abele.poplibs.popsparse.float8 import result_type

NUM_OVERFLOW = 3
"""Numbers of the overflow info before its flags: passes along x and y, steps along z."""


@dataclass(frozen=True)
class DynamicPlan:
    """Spread of a product with a sparse matrix over tiles.

    Attributes:
        layer: Sizes.
        dtype: Type of values and dense operands; dense ones of 8-bit floats may be of another format and scale.
        options: Options that it was made with.
        block: Rows and columns of a block on the device; blocks of the user may be cut smaller.
        parts: Parts of rows (x), columns (y) and dense columns (z).
        nz_slots: Blocks that a bucket has room for.
        meta_slots: u16 entries of a bucket's meta-info.
        grad_a_slots: The same for a list of columns; 0 where the gradient of the input walks the list of rows.
        moves_buckets: True if gradients of weights move buckets round, False if dense slices.
        amp_grad_w: True if they are computed on the matrix units.
        cycles: Estimated cycles of each stage, by pass and stage.
        temporary_bytes: Estimated bytes of temporaries on the busiest tile.
        bound_bytes: Bytes that the search allowed.
    """

    layer: DynamicFullyConnectedParams
    dtype: ElementType
    options: DynamicOptions
    block: tuple[int, int]
    parts: tuple[int, int, int]
    nz_slots: int
    meta_slots: int
    grad_a_slots: int
    moves_buckets: bool
    amp_grad_w: bool
    cycles: tuple[tuple[str, str, int], ...]
    temporary_bytes: int
    bound_bytes: int

    @property
    def is_half(self) -> bool:
        """True for operands whose sums may be halves: f16, and 8-bit floats, whose sums always are."""
        return is_half(self.dtype)

    @property
    def result(self) -> ElementType:
        """Type of products."""
        return result_type(self.dtype)

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns of a group's matrix, in blocks of the device."""
        rows, columns = self.layer.shape
        return rows // self.block[0], columns // self.block[1]

    @property
    def cell(self) -> tuple[int, int]:
        """Block rows and block columns of a cell; the last cells may have fewer."""
        return -(-self.grid[0] // self.parts[0]), -(-self.grid[1] // self.parts[1])

    @property
    def columns(self) -> int:
        """Dense columns of a tile; the last tiles may have fewer."""
        grain = 1 if self.by_block else z_grain(self.dtype)
        return -(-self.layer.batchSize // grain // self.parts[2]) * grain

    @property
    def by_block(self) -> bool:
        """True if values come in blocks of more than one element."""
        return self.block != (1, 1)

    @property
    def fast_block(self) -> int:
        """Edge of blocks that the matrix units take; 0 for others."""
        return fast_edge(self.block, self.dtype)

    @property
    def area(self) -> int:
        """Values of a block of the device."""
        return self.block[0] * self.block[1]

    @property
    def num_cells(self) -> int:
        """Cells of a group."""
        return self.parts[0] * self.parts[1]

    @property
    def group_tiles(self) -> int:
        """Tiles of a group."""
        return self.num_cells * self.parts[2]

    @property
    def num_tiles(self) -> int:
        """Tiles of all groups."""
        return self.layer.numGroups * self.group_tiles

    @property
    def header(self) -> int:
        """Entries of a sub-group before its first row: its header and its workers' records."""
        if self.by_block:
            return 7 + (4 * WORKERS if self.options.grad_w else 0)
        return 9 + WORKERS * (10 if self.options.grad_w else 5)

    @property
    def info_slots(self) -> int:
        """Entries of the overflow info, a whole number of words."""
        entries = NUM_OVERFLOW + self.parts[0]
        return entries + entries % 2

    @property
    def num_meta(self) -> int:
        """Entries of the whole meta-info."""
        return self.info_slots + self.num_tiles * (self.meta_slots + self.grad_a_slots)

    @property
    def num_values(self) -> int:
        """Elements of all value buckets."""
        return self.num_tiles * self.nz_slots * self.area

    def pass_cycles(self, name: str) -> int:
        """Estimated cycles of a pass: ``fwd``, ``gradA`` or ``gradW``; 0 for one that is not planned."""
        return sum(cycles for of, _, cycles in self.cycles if of == name)


def is_half(dtype: ElementType) -> bool:
    """True for operands whose sums may be halves."""
    return result_type(dtype) == f16


def z_grain(dtype: ElementType) -> int:
    """Dense columns that vertices by elements take at once."""
    return 4 if dtype == f16 else 2


def device_block(block: tuple[int, int], dtype: ElementType) -> tuple[int, int]:
    """Block that the device works in: square ones are cut to the largest edge with a vertex that divides them."""
    if block[0] != block[1]:
        return block
    edges = sorted(_edges(dtype), reverse=True)
    edge = next((e for e in edges if block[0] % e == 0), block[0])
    return edge, edge


def fast_edge(block: tuple[int, int], dtype: ElementType) -> int:
    """Edge of a square block that the matrix units take, or 0."""
    return block[0] if block[0] == block[1] and block[0] in _edges(dtype) else 0


def _edges(dtype: ElementType) -> tuple[int, ...]:
    """Edges of square blocks that the matrix units take; a row of 8-bit floats fills a word of their input."""
    if dtype.is_quarter:
        return 8, 16
    return (4, 8, 16) if dtype == f16 else (4, 8)
