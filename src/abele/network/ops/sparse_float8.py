"""Products of 8-bit floats with a sparse matrix of a known pattern, and products at the places of one alone.

They are ``sparse_matmul`` and ``sampled_matmul`` of values that were cast to 8 bits, times a power of two, in f16.
Scales are those of :mod:`~abele.network.ops.float8`. Gradients of a layer are products of these kinds, of operands that
are cast anew, so that there is no derivative.

Example: with S of 128 × 64 in blocks of 16 × 16 at half density, values f8_143[16, 16, 16] times X f8_143[64, 32] are
f16[128, 32].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart, whole_digits
from abele.network.ops.float8 import Pow2Scaled, check_quarters, check_scale, power_of, scale_of, scaled_operands
from abele.network.ops.sparse_calls import new_dense_rows, new_sparse_values, sampled_quarters, sparse_product
from abele.network.ops.sparse_matmul import require_values
from abele.network.registry import Types, require, rule
from abele.numerics import f16, to_host
from abele.poplibs.poplin.operations.float8 import multiplies_quarters
from abele.sparsity import Pattern
from abele.sparsity.products import sampled, sparse_times

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def sparse_matmul_pow2scaled(
    net: BlockBuilder,
    values: Value,
    dense: Value,
    log2_scale: Value | int,
    pattern: Pattern,
    *,
    transposed: bool = False,
    throws: bool = True,
    converts: bool = False,
) -> Value:
    """``(S · dense) · 2^log2_scale``, or with Sᵀ, in f16.

    Args:
        net: Network or block to extend.
        values: Values of S in the pattern's order, [blocks, block rows, block columns], 8-bit floats.
        dense: [k, n] for S [m, k]; [m, n] where S is transposed; 8-bit floats of any format.
        log2_scale: From -32 to 31.
        pattern: Blocks that S holds, of 8 × 8 or 16 × 16.
        transposed: True to multiply by the transpose.
        throws: True if the program stops where the scale is out of range; else the nearest that is not counts.
        converts: True if operands are cast to f16 on chips that do not multiply 8-bit floats, which refuse them else.
    """
    operands, scale = scaled_operands([values, dense], log2_scale)
    shape = (pattern.shape[1 if transposed else 0], dense.shape[1])
    how = {"log2_scale": scale, "throws": throws, "converts": converts}
    return net.emit("sparse_matmul_pow2scaled", operands, shape, f16, pattern=pattern, transposed=transposed, **how)


def sampled_matmul_pow2scaled(
    net: BlockBuilder,
    a: Value,
    b: Value,
    log2_scale: Value | int,
    pattern: Pattern,
    *,
    throws: bool = True,
    converts: bool = False,
) -> Value:
    """Values of ``(a · bᵀ) · 2^log2_scale`` at a pattern's places, in f16: a [m, n] and b [k, n], 8-bit floats."""
    operands, scale = scaled_operands([a, b], log2_scale)
    how = {"log2_scale": scale, "throws": throws, "converts": converts}
    shape = (pattern.num_blocks, *pattern.block)
    return net.emit("sampled_matmul_pow2scaled", operands, shape, f16, pattern=pattern, **how)


def _numbers(op: NetworkOp, *operands: Array) -> list[Array]:
    return [np.asarray(to_host(a, v.dtype), np.float32) for a, v in zip(operands, op.inputs, strict=False)]


@rule("sparse_matmul_pow2scaled")
class SparseMatMulPow2Scaled(Pow2Scaled):
    """S · dense of 8-bit values [blocks, *block] and dense [k, n], or with the transpose of S, times a power of two."""

    operands = (2, 3)
    attributes: ClassVar = {"log2_scale": int, "throws": bool, "converts": bool, "pattern": Pattern, "transposed": bool}
    wants_one_piece = True
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """[m, n] in f16."""
        values, dense = op.inputs[:2]
        pattern: Pattern = op.attrs["pattern"]
        made, read = pattern.shape[::-1] if op.attrs["transposed"] else pattern.shape
        check_scale(op, 2)
        check_quarters(values, dense)
        require_values(values, pattern)
        require(
            dense.ndim == 2 and dense.shape[0] == read, f"{dense} has no {read} rows, which {pattern} is multiplied by"
        )
        return [((made, dense.shape[1]), f16)]

    def evaluate(self, op: NetworkOp, values: Array, dense: Array, *log2_scale: Array) -> Array:
        """The product in NumPy, block by block."""
        held, taken = _numbers(op, values, dense)
        made = sparse_times(op.attrs["pattern"], held, taken, transposed=op.attrs["transposed"])
        return np.asarray(made * power_of(op, log2_scale))

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same columns of the dense operand. Values are used whole."""
        values, dense, *scale = op.inputs
        made = part.with_whole(0)
        taken = ValuePart((whole_digits(dense.shape[0]), made.dims[1]))
        return made, [ValuePart.whole(values.shape), taken, *(ValuePart.whole(v.shape) for v in scale)]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One product with a sparse operand."""
        values, dense = (to[v] for v in op.inputs[:2])
        return sparse_product(
            to.graph,
            values,
            dense,
            op.attrs["pattern"],
            to.prog,
            transposed=op.attrs["transposed"],
            scale=scale_of(to, op, 2),
            throws=op.attrs["throws"],
            converts=op.attrs["converts"],
        )

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """As of products of wider floats; none where they are cast to those first."""
        values, dense = op.inputs[:2]
        pattern, columns, transposed = op.attrs["pattern"], dense.shape[1], op.attrs["transposed"]
        if operand > 1 or not multiplies_quarters(to.graph.system):
            return None
        if operand:
            return new_dense_rows(to.graph, dense.dtype, pattern, columns, dense.name or "dense", transposed=transposed)
        return (
            None if transposed else new_sparse_values(to.graph, values.dtype, pattern, columns, values.name or "values")
        )


@rule("sampled_matmul_pow2scaled")
class SampledMatMulPow2Scaled(Pow2Scaled):
    """a · bᵀ at the places of a pattern, of 8-bit a [m, n] and b [k, n], times a power of two."""

    operands = (2, 3)
    attributes: ClassVar = {"log2_scale": int, "throws": bool, "converts": bool, "pattern": Pattern}
    wants_one_piece = True
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """[blocks, *block] in f16."""
        a, b = op.inputs[:2]
        pattern: Pattern = op.attrs["pattern"]
        check_scale(op, 2)
        check_quarters(a, b)
        fits = a.ndim == b.ndim == 2 and (a.shape[0], b.shape[0]) == pattern.shape and a.shape[1] == b.shape[1]
        require(fits, f"{a} and {b} are no rows and columns of {pattern}")
        return [((pattern.num_blocks, *pattern.block), f16)]

    def evaluate(self, op: NetworkOp, a: Array, b: Array, *log2_scale: Array) -> Array:
        """The product in NumPy at these places."""
        return np.asarray(sampled(op.attrs["pattern"], *_numbers(op, a, b)) * power_of(op, log2_scale))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One sampled product."""
        a, b = (to[v] for v in op.inputs[:2])
        how = {"throws": op.attrs["throws"], "converts": op.attrs["converts"]}
        return sampled_quarters(to.graph, a, b, op.attrs["pattern"], to.prog, scale=scale_of(to, op, 2), **how)
