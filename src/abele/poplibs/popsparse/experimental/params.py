"""Parameters of products and softmaxes of matrices that are held in blocks.

Groups are matrices of one size, stacked along their rows: a mask of two groups of 4 × 3 blocks has 8 × 3 bytes. A
sparse operand is [blocks, area], one row for each block that is held, from the top and in each row of blocks from the
left; elements of a block are row-major.

>>> p = BSMatMulParams((32, 32, 32), (16, 16, 16), [1, 0, 0, 1], False, "half", "half", "float")
>>> p.lhs_shape, p.rhs_shape, p.out_shape
((32, 32), (2, 256), (32, 32))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError, SparsePatternError, TensorError, TypeMismatchError, nearest
from abele.numerics import ElementType, as_element_type, f16, f32
from abele.poplibs.poplin.options import resolve_types
from abele.poplibs.poputil.options import Options, choice, integer, number, read_options
from abele.sparsity import Pattern, whole_sizes
from abele.words import counted


class SubBlockMask(Enum):
    """Elements of held blocks that count as zero, by their place in the whole matrix of a group."""

    NONE = "None"
    """No element."""
    ZeroUpperTriangle = "ZeroUpperTriangle"
    """Elements right of the diagonal: what a causal attention hides."""
    ZeroLowerTriangle = "ZeroLowerTriangle"
    """Elements left of the diagonal."""

    @staticmethod
    def of(value: SubBlockMask | str | None) -> SubBlockMask:
        """The mask that is meant by a name of PopLibs, or None.

        Raises:
            InvalidOptionError: There is no such mask.
        """
        if isinstance(value, SubBlockMask):
            return value
        names = [m.value for m in SubBlockMask]
        text = "None" if value is None else str(value)
        if text not in names:
            close = nearest(text, names)
            raise InvalidOptionError(f"there is no SubBlockMask {text!r}", remedy=close or ", ".join(names))
        return SubBlockMask(text)


METHODS = ("strip", "stripv0", "block", "block-naive", "block-group2")
"""Ways to share products out between tiles; see :mod:`~abele.poplibs.popsparse.experimental.partition`."""

OPTIONS = {
    "numberOfPass": integer(1, 1, doc="parts of the result that are made one after the other, to save memory"),
    "memoryCycleRatio": number(0.2, 0.0, 1.0, doc="weight of memory beside cycles when a product is cut; 0: cycles"),
    "partitionMethod": choice(*METHODS, doc="the way that products are shared out between tiles"),
}
"""Options of products of blocks. Source of the defaults: PopLibs' code; its header says 1 and ``block``."""


@dataclass(frozen=True)
class BlockProductOptions:
    """Options of a product, as read.

    Attributes:
        passes: Parts of the result that are made one after the other.
        memory_ratio: Weight of memory beside cycles, 0 to 1.
        method: One of :data:`METHODS`.
    """

    passes: int = 1
    memory_ratio: float = 0.2
    method: str = "strip"

    @staticmethod
    def read(function: str, options: Options, groups: int) -> BlockProductOptions:
        """Options as users give them.

        Raises:
            InvalidOptionError: An option or value that there is not, or several passes of several groups.
        """
        read = read_options(function, options, OPTIONS)
        if read["numberOfPass"] > 1 and groups > 1:
            raise InvalidOptionError(
                f"{function}: numberOfPass is {read['numberOfPass']} with {groups} groups",
                because="only one group is cut into passes",
                remedy="numberOfPass 1, or a product for each group",
            )
        return BlockProductOptions(read["numberOfPass"], read["memoryCycleRatio"], read["partitionMethod"])


def mask_pattern(
    what: str, mask: Pattern | npt.ArrayLike, shape: tuple[int, int], block: tuple[int, int], groups: int
) -> Pattern:
    """The pattern of ``groups`` stacked matrices of ``shape`` from their bytes, or from a pattern as it is.

    Raises:
        SparsePatternError: The number of bytes, or the pattern's shape or block, is another.
    """
    stacked = (groups * shape[0], shape[1])
    for name, size, part in zip(("rows", "columns"), shape, block, strict=True):
        if size < 1 or part < 1 or size % part:
            raise SparsePatternError(
                f"{what}: {size:,} {name} are no multiple of a block's {part:,}", remedy="a block that divides them"
            )
    if isinstance(mask, Pattern):
        if (mask.shape, mask.block) != (stacked, tuple(block)):
            raise SparsePatternError(
                f"{what}: {mask} is no pattern of {stacked[0]:,} x {stacked[1]:,} in blocks of {block[0]} x {block[1]}",
                because=f"{counted(groups, 'group')} of {shape[0]:,} x {shape[1]:,} are stacked along the rows",
            )
        return mask
    held = np.frombuffer(mask, np.uint8) if isinstance(mask, (bytes, bytearray)) else np.asarray(mask)
    if held.dtype.kind not in "biu":
        raise SparsePatternError(
            f"{what}: a mask of blocks is of bytes, got {held.dtype}",
            remedy="1 for each block that is held, 0 for others",
        )
    grid = stacked[0] // block[0], stacked[1] // block[1]
    if held.size != grid[0] * grid[1]:
        raise SparsePatternError(
            f"{what}: a mask of {held.size:,} bytes for {grid[0]:,} x {grid[1]:,} blocks",
            because=f"{counted(groups, 'group')} of {shape[0]:,} x {shape[1]:,} in blocks of {block[0]} x {block[1]}",
            remedy=f"{grid[0] * grid[1]:,} bytes, groups after each other",
        )
    return Pattern.from_dense_mask(held.reshape(grid), (block[0], block[1]))


_DENSE_SPARSE = ("rhsNeedTranspose", "inDataType", "outDataType", "partialDataType", "numGroups")
_DENSE_DENSE = ("inDataType", "outDataType", "partialDataType", "subBlockMask", "numGroups")


@dataclass(frozen=True, init=False)
class BSMatMulParams:
    """Parameters of a product of which the right operand, or the result, is held in blocks.

    ``BSMatMulParams(dim, blockSize, rhsSparsity, rhsNeedTranspose, inDataType, outDataType, partialDataType,
    numGroups)`` is dense × sparse → dense, ``BSMatMulParams(dim, blockSize, resSparsity, inDataType, outDataType,
    partialDataType, subBlockMask, numGroups)`` dense × dense → sparse. A mask is bytes for all blocks, groups after
    each other, or a :class:`~abele.sparsity.Pattern` of the stacked groups.

    Attributes:
        dim: m, k, n of a group.
        blockSize: Extents of blocks along m, k and n.
        pattern: Held blocks of the sparse matrix as it is stored, of all groups.
        isResultSparse: True if the result is held in blocks, False if the right operand is.
        rhsNeedTranspose: True if the right operand is stored as [n, k], with blocks to match.
        inDataType: Type of the operands. An 8-bit float stands for any format and scale.
        outDataType: Type of the result; f16 of 8-bit floats.
        partialDataType: Type of partial sums; f16 of 8-bit floats, with a warning where it was another.
        subBlockMask: Elements of held blocks of the result that are zero.
        numGroups: Products that are stacked along rows.

    Raises:
        SparsePatternError: Extents that are no multiples of the blocks, or a mask of another size.
        TypeMismatchError: Types that the matrix units do not take, f32 operands with f16 partial sums among them; 8-bit
            floats in blocks whose inner side is no multiple of 8.
        TensorError: Three extents are not given, or no group.
    """

    dim: tuple[int, int, int]
    blockSize: tuple[int, int, int]
    pattern: Pattern
    isResultSparse: bool
    rhsNeedTranspose: bool
    inDataType: ElementType
    outDataType: ElementType
    partialDataType: ElementType
    subBlockMask: SubBlockMask
    numGroups: int

    def __init__(
        self,
        dim: Sequence[int],
        blockSize: Sequence[int],
        sparsity: Pattern | npt.ArrayLike | None = None,
        *rest: Any,
        **named: Any,
    ) -> None:
        for other in ("rhsSparsity", "resSparsity"):
            sparsity = named.pop(other, sparsity)
        given = _named(rest, named)
        rhs_is_sparse = "rhsNeedTranspose" in given
        for name, value in (("dim", dim), ("blockSize", blockSize)):
            sizes = whole_sizes(f"BSMatMulParams: {name}", value)
            if len(sizes) != 3:
                raise SparsePatternError(f"BSMatMulParams: {name} is m, k and n, got {list(sizes)}")
            object.__setattr__(self, name, sizes)
        groups = whole_sizes("BSMatMulParams: numGroups", (given.get("numGroups", 1),))[0]
        if groups < 1:
            raise TensorError(f"BSMatMulParams: there is at least one group, got {groups}")
        turned = bool(given.get("rhsNeedTranspose", False))
        (m, k, n), (bm, bk, bn) = self.dim, self.blockSize
        for name, size, part in (("m", m, bm), ("k", k, bk), ("n", n, bn)):
            if size < 1 or part < 1 or size % part:
                raise SparsePatternError(
                    f"BSMatMulParams: {name} of {size:,} is no multiple of its block, {part:,}",
                    remedy=f"{size - size % part or part:,} or {size + part - size % part:,}" if part > 0 else None,
                )
        shape, block = ((k, n), (bk, bn)) if rhs_is_sparse else ((m, n), (bm, bn))
        if turned:
            shape, block = shape[::-1], block[::-1]
        if sparsity is None:
            raise TensorError("BSMatMulParams: no mask of blocks is given", remedy="rhsSparsity or resSparsity")
        set_ = object.__setattr__
        set_(self, "pattern", mask_pattern("BSMatMulParams", sparsity, shape, block, groups))
        set_(self, "isResultSparse", not rhs_is_sparse)
        set_(self, "rhsNeedTranspose", turned)
        for name in ("inDataType", "outDataType", "partialDataType"):
            set_(self, name, as_element_type(given[name]))
        set_(self, "subBlockMask", SubBlockMask.of(given.get("subBlockMask", SubBlockMask.NONE)))
        set_(self, "numGroups", groups)
        _check_types(self)

    @property
    def lhs_shape(self) -> tuple[int, int]:
        """Shape of the left operand: groups along rows."""
        return self.numGroups * self.dim[0], self.dim[1]

    @property
    def rhs_shape(self) -> tuple[int, int]:
        """Shape of the right operand: [blocks, area] if it is sparse."""
        if self.isResultSparse:
            return self.numGroups * self.dim[1], self.dim[2]
        return self.pattern.num_blocks, self.blockSize[1] * self.blockSize[2]

    @property
    def out_shape(self) -> tuple[int, int]:
        """Shape of the result: [blocks, area] if it is sparse."""
        if self.isResultSparse:
            return self.pattern.num_blocks, self.blockSize[0] * self.blockSize[2]
        return self.numGroups * self.dim[0], self.dim[2]

    @property
    def flops(self) -> int:
        """Multiplications and additions, of held blocks alone."""
        other = self.dim[1] if self.isResultSparse else self.dim[0]
        return 2 * self.pattern.num_values * other


def _named(rest: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments behind the mask, by name, in the order of one constructor or the other."""
    first = rest[0] if rest else None
    is_flag = isinstance(first, (bool, np.bool_)) or "rhsNeedTranspose" in named
    names = _DENSE_SPARSE if is_flag else _DENSE_DENSE
    if len(rest) > len(names):
        raise TensorError(f"BSMatMulParams takes {', '.join(names)} behind the mask, got {len(rest)} values")
    given = dict(zip(names, rest, strict=False))
    for name, value in named.items():
        if name not in names or name in given:
            close = nearest(name, names)
            raise TensorError(
                f"BSMatMulParams: {name!r} is given twice" if name in given else f"BSMatMulParams has no {name!r}",
                remedy=close or ", ".join(names),
            )
        given[name] = value
    missing = [n for n in names if n.endswith("DataType") and n not in given]
    if missing:
        raise TensorError(f"BSMatMulParams: {missing[0]} is not given", remedy=f"behind the mask: {', '.join(names)}")
    return given


_QUARTER_INNER = 8
"""Factor of the inner side of blocks of 8-bit floats: a word of the matrix units' input. Source: machine.md §1.3."""


def _check_types(params: BSMatMulParams) -> None:
    kinds = {n: getattr(params, n) for n in ("inDataType", "outDataType", "partialDataType")}
    if params.inDataType.is_quarter:
        _check_quarters(params)
        return
    for name, dtype in kinds.items():
        if dtype not in (f16, f32):
            what = "f16, f32 or an 8-bit float" if name == "inDataType" else "f16 or f32"
            raise TypeMismatchError(f"BSMatMulParams: {name} is {what}, got {dtype}")
    if params.inDataType == f32 and params.partialDataType == f16:
        raise TypeMismatchError(
            "BSMatMulParams: f32 operands with f16 partial sums",
            because="the matrix units sum products of f32 in f32 alone",
            remedy="partialDataType float, or operands of half",
        )


def _check_quarters(params: BSMatMulParams) -> None:
    """Refuse types and blocks that 8-bit floats do not have; partial sums become f16, as in poplin."""
    types = resolve_types(
        "BSMatMulParams", {"inDataType": params.inDataType}, params.outDataType, params.partialDataType
    )
    object.__setattr__(params, "partialDataType", types.partials)
    if params.blockSize[1] % _QUARTER_INNER:
        raise TypeMismatchError(
            f"BSMatMulParams: blocks of {params.blockSize[1]} along k are of {params.inDataType}",
            because=f"the matrix units take {_QUARTER_INNER} 8-bit floats of a sum at a time",
            remedy=f"a multiple of {_QUARTER_INNER}, or operands of half",
        )
