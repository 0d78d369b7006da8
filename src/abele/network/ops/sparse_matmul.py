"""Products with a sparse matrix of a known pattern, and products at the places of one alone.

A sparse matrix S is a value ``[blocks, block rows, block columns]`` beside a :class:`~abele.sparsity.Pattern`, an
attribute of the op. Two kinds are closed under derivatives: of ``sparse_matmul``, Y = S · X, the gradient by X is
Sᵀ · dY, a ``sparse_matmul`` too, and that by the values is dY · Xᵀ at the pattern's places, a ``sampled_matmul``.

Example: S of 128 × 64 with 205 blocks of 4 × 4 is a value f32[205, 4, 4]; with X f32[64, 32] the product is
f32[128, 32], of 2 · 205 · 16 · 32 operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart, whole_digits
from abele.network.ops.sparse_calls import new_dense_rows, new_sparse_values, sampled_product, sparse_product
from abele.network.ops.views import expand, reshape, transpose
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.sparsity import Pattern
from abele.sparsity.products import sampled, sparse_times

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def sparse_matmul(
    net: BlockBuilder, values: Value, dense: Value, pattern: Pattern, *, transposed: bool = False
) -> Value:
    """S · dense, or Sᵀ · dense.

    Args:
        net: Network or block to extend.
        values: Values of S in the pattern's order, [blocks, block rows, block columns].
        dense: [k, n] for S [m, k]; [m, n] where S is transposed.
        pattern: Blocks that S holds.
        transposed: True to multiply by the transpose.
    """
    made = pattern.shape[1 if transposed else 0]
    return net.emit(
        "sparse_matmul", [values, dense], (made, dense.shape[1]), dense.dtype, pattern=pattern, transposed=transposed
    )


def sampled_matmul(net: BlockBuilder, a: Value, b: Value, pattern: Pattern) -> Value:
    """Values of a · bᵀ at the places of a pattern: a [m, n] and b [k, n] give [blocks, block rows, block columns]."""
    return net.emit("sampled_matmul", [a, b], (pattern.num_blocks, *pattern.block), a.dtype, pattern=pattern)


def sparse_linear(
    net: BlockBuilder, x: Value, values: Value, pattern: Pattern, bias: Value | None = None, *, transposed: bool = False
) -> Value:
    """``x · Sᵀ + bias``, a fully connected layer: x [..., in], S [out, in]; gives [..., out].

    Args:
        net: Network or block to extend.
        x: Activations.
        values: Values of S.
        pattern: Its pattern.
        bias: [out].
        transposed: True for ``x · S``, with S [in, out].
    """
    rows = transpose(net, reshape(net, x, (-1, x.shape[-1])))
    product = transpose(net, sparse_matmul(net, values, rows, pattern, transposed=transposed))
    return with_bias(net, reshape(net, product, (*x.shape[:-1], product.shape[-1])), bias)


def with_bias(net: BlockBuilder, product: Value, bias: Value | None) -> Value:
    """A product [..., out] plus a bias [out]."""
    from abele.expr.derivative import arg
    from abele.network.ops.elementwise import map_

    return product if bias is None else map_(net, arg(0) + arg(1), [product, expand(net, bias, product.shape)])


@rule("sparse_matmul")
class SparseMatMul(OpRule):
    """S · dense of values [blocks, *block] and dense [k, n], or with the transpose of S."""

    operands = 2
    attributes: ClassVar = {"pattern": Pattern, "transposed": bool}
    wants_one_piece = True

    def types(self, op: NetworkOp) -> Types:
        """[m, n]."""
        values, dense = op.inputs
        pattern: Pattern = op.attrs["pattern"]
        made, read = pattern.shape[::-1] if op.attrs["transposed"] else pattern.shape
        require_values(values, pattern)
        require(
            dense.ndim == 2 and dense.shape[0] == read, f"{dense} has no {read} rows, which {pattern} is multiplied by"
        )
        _require_alike(values, dense)
        return [((made, dense.shape[1]), dense.dtype)]

    def evaluate(self, op: NetworkOp, values: Array, dense: Array) -> Array:
        """The product in NumPy, block by block."""
        return sparse_times(op.attrs["pattern"], values, dense, transposed=op.attrs["transposed"])

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same columns of the dense operand. Values are used whole."""
        values, dense = op.inputs
        made = part.with_whole(0)
        return made, [ValuePart.whole(values.shape), ValuePart((whole_digits(dense.shape[0]), made.dims[1]))]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One product with a sparse operand."""
        values, dense = (to[v] for v in op.inputs)
        return sparse_product(to.graph, values, dense, op.attrs["pattern"], to.prog, transposed=op.attrs["transposed"])

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The values where they are multiplied, in the pattern's own direction; the dense operand in long rows."""
        values, dense = op.inputs
        pattern, columns, transposed = op.attrs["pattern"], dense.shape[1], op.attrs["transposed"]
        if operand:
            return new_dense_rows(to.graph, dense.dtype, pattern, columns, dense.name or "dense", transposed=transposed)
        return (
            None if transposed else new_sparse_values(to.graph, values.dtype, pattern, columns, values.name or "values")
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient sampled at the pattern's places, and the product with the transpose."""
        grad = only(grads)
        values, dense = op.inputs
        pattern, transposed = op.attrs["pattern"], op.attrs["transposed"]
        pair = (dense, grad) if transposed else (grad, dense)
        by_values = sampled_matmul(net, *pair, pattern) if wanted[0] else None
        by_dense = sparse_matmul(net, values, grad, pattern, transposed=not transposed) if wanted[1] else None
        return [by_values, by_dense]


@rule("sampled_matmul")
class SampledMatMul(OpRule):
    """a · bᵀ at the places of a pattern, of a [m, n] and b [k, n]."""

    operands = 2
    attributes: ClassVar = {"pattern": Pattern}
    wants_one_piece = True

    def types(self, op: NetworkOp) -> Types:
        """[blocks, *block]."""
        a, b = op.inputs
        pattern: Pattern = op.attrs["pattern"]
        fits = a.ndim == b.ndim == 2 and (a.shape[0], b.shape[0]) == pattern.shape and a.shape[1] == b.shape[1]
        require(fits, f"{a} and {b} are no rows and columns of {pattern}")
        _require_alike(a, b)
        return [((pattern.num_blocks, *pattern.block), a.dtype)]

    def evaluate(self, op: NetworkOp, a: Array, b: Array) -> Array:
        """The product in NumPy at these places."""
        return sampled(op.attrs["pattern"], a, b)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One sampled product."""
        a, b = (to[v] for v in op.inputs)
        return sampled_product(to.graph, a, b, op.attrs["pattern"], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Products of the gradient, which is sparse, with the other side."""
        grad = only(grads)
        (a, b), pattern = op.inputs, op.attrs["pattern"]
        by_a = sparse_matmul(net, grad, b, pattern) if wanted[0] else None
        by_b = sparse_matmul(net, grad, a, pattern, transposed=True) if wanted[1] else None
        return [by_a, by_b]


def _require_alike(a: Value, b: Value) -> None:
    """Raise unless two values are of one type, a float of 16 or 32 bits.

    Raises:
        NetworkError: They are not.
    """
    require(a.dtype == b.dtype and a.dtype.is_float, f"{a} and {b} are not of one float type")
    require(not a.dtype.is_quarter, f"{a} is an 8-bit float, whose products have a scale: …_pow2scaled")


def require_values(values: Value, pattern: Pattern) -> None:
    """Raise unless a value has the shape of a pattern's values.

    Raises:
        NetworkError: It has another.
    """
    shape = (pattern.num_blocks, *pattern.block)
    require(values.shape == shape, f"{values} is not {list(shape)}, as the values of {pattern} are")
