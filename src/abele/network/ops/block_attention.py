"""Attention of which only some blocks of scores are made: their products, softmax and product with values.

Scores are a value [batch, blocks, block rows, block columns] beside a pattern. One pattern, of a stack of heads, serves
all of a batch: group g of the operands, which are [batch · heads, rows, width], is head g % heads. With one head in the
pattern all groups share it. What is not held is never computed, and counts as minus infinity in the softmax; rows in
which nothing is held, or all is hidden by a mask, are zeros.

Three kinds are closed under derivatives. Of scores S = Q · Kᵀ at the pattern's places, the gradients are the products
dS · K and dSᵀ · Q; of O = P · V, they are the scores dO · Vᵀ, and Pᵀ · dO.

Example: 2 samples of 12 heads, 512 queries and keys of width 64, in blocks of 16 with a quarter held: scores are
f32[2, 3072, 16, 16] for a stack of 12 patterns of 256 blocks, of 2 · 12 · 256 · 16 · 16 · 64 multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr.derivative import arg
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import map_
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import f16, f32
from abele.poplibs.popsparse import experimental
from abele.poplibs.popsparse.experimental import BSMatMulParams
from abele.sparsity import Pattern, split_stack, stack_patterns

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

NO_MASK = "None"
CAUSAL = "ZeroUpperTriangle"
"""Masks of elements of held blocks, by PopLibs' names: none, and what lies right of the diagonal."""
_MASKS = (NO_MASK, CAUSAL, "ZeroLowerTriangle")
_WIDTH = 16
"""Width of blocks of what is not held in blocks: as many rows or columns as the matrix units hold."""


def block_attention(
    net: BlockBuilder,
    q: Value,
    k: Value,
    v: Value,
    pattern: Pattern,
    *,
    mask: str = NO_MASK,
    scale: float | None = None,
) -> Value:
    """softmax(scale · Q · Kᵀ) · V over the blocks of a pattern: [groups, queries, width of V].

    Args:
        net: Network or block to extend.
        q: Queries [groups, queries, width].
        k: Keys [groups, keys, width].
        v: Values [groups, keys, width of V].
        pattern: Blocks of scores that are made: of one head, or of a stack of heads.
        mask: Elements of held blocks that are hidden.
        scale: Factor of the scores; by default 1 / √width.
    """
    factor = 1.0 / sqrt(max(q.shape[-1], 1)) if scale is None else scale
    scaled = q if factor == 1.0 else map_(net, arg(0) * factor, [q], q.dtype)
    shares = block_softmax(net, block_scores(net, scaled, k, pattern), pattern, heads_of(pattern, q), mask=mask)
    return block_product(net, shares, v, pattern)


def heads_of(pattern: Pattern, queries: Value) -> int:
    """Heads in a pattern's stack, for queries [groups, queries, width].

    Raises:
        NetworkError: The pattern's rows are no multiple of the queries.
    """
    rows = queries.shape[1]
    require(rows and pattern.shape[0] % rows == 0, f"{pattern} is no stack of {rows:,} queries, as {queries} has")
    return pattern.shape[0] // rows


def block_scores(net: BlockBuilder, q: Value, k: Value, pattern: Pattern) -> Value:
    """Q · Kᵀ at the places of a pattern, [batch, blocks, block rows, block columns]."""
    heads = heads_of(pattern, q)
    shape = (q.shape[0] // heads, pattern.num_blocks, *pattern.block)
    return net.emit("block_scores", [q, k], shape, q.dtype, pattern=pattern, heads=heads)


def block_softmax(net: BlockBuilder, scores: Value, pattern: Pattern, heads: int, *, mask: str = NO_MASK) -> Value:
    """The softmax of each row over its held blocks, in the shape of the scores."""
    return net.emit_like("block_softmax", [scores], scores, pattern=pattern, heads=heads, mask=mask)


def block_product(net: BlockBuilder, shares: Value, x: Value, pattern: Pattern, *, transposed: bool = False) -> Value:
    """P · X of held blocks P and X [groups, keys, width]; or Pᵀ · X, of X [groups, queries, width]."""
    heads = x.shape[0] // max(shares.shape[0], 1)
    made = pattern.shape[1] if transposed else pattern.shape[0] // max(heads, 1)
    shape = (x.shape[0], made, x.shape[2])
    return net.emit("block_product", [shares, x], shape, x.dtype, pattern=pattern, heads=heads, transposed=transposed)


class _OfBlocks(OpRule):
    """A kind with a pattern of a stack of heads."""

    attributes: ClassVar = {"pattern": Pattern, "heads": int}
    wants_one_piece = True

    @staticmethod
    def pattern_of(op: NetworkOp) -> tuple[Pattern, int, int]:
        """The pattern, its heads, and the rows of each."""
        pattern, heads = op.attrs["pattern"], op.attrs["heads"]
        require(heads > 0 and pattern.grid[0] % heads == 0, f"{pattern} is no stack of {heads} heads")
        return pattern, heads, pattern.shape[0] // heads

    @classmethod
    def require_blocks(cls, op: NetworkOp, value: Value) -> None:
        """Raise unless a value has blocks of the pattern for each sample."""
        pattern = cls.pattern_of(op)[0]
        wanted = (pattern.num_blocks, *pattern.block)
        require(value.ndim == 4 and value.shape[1:] == wanted, f"{value} is no [batch, *{list(wanted)}] of {pattern}")

    @classmethod
    def require_rows(cls, op: NetworkOp, value: Value, rows: int, batch: int | None = None) -> None:
        """Raise unless a value is [batch · heads, rows, width]."""
        _, heads, _ = cls.pattern_of(op)
        fits = value.ndim == 3 and value.shape[1] == rows and value.shape[0] % heads == 0
        fits = fits and batch in (None, value.shape[0] // heads)
        require(fits, f"{value} is not [batch x {heads}, {rows:,}, width]")

    @staticmethod
    def require_types(*values: Value) -> None:
        """Raise unless values are of one type that the matrix units take."""
        first = values[0]
        same = all(v.dtype == first.dtype for v in values) and first.dtype in (f16, f32)
        require(same, f"{' and '.join(map(str, values))} are not both f16 or both f32")

    @staticmethod
    def planning(to: Lowering, op: NetworkOp) -> dict[str, object]:
        """Type of partial sums, as products of this program have it."""
        return {"partials": to.planned(op, op.output.dtype).get("partials_type", f32)}


@rule("block_scores")
class BlockScores(_OfBlocks):
    """Q · Kᵀ at the places of a pattern, of q [groups, queries, width] and k [groups, keys, width]."""

    operands = 2
    planned = True

    def types(self, op: NetworkOp) -> Types:
        """[batch, blocks, *block]."""
        q, k = op.inputs
        pattern, heads, rows = self.pattern_of(op)
        self.require_rows(op, q, rows)
        self.require_rows(op, k, pattern.shape[1], q.shape[0] // heads)
        require(q.shape[2] == k.shape[2] and q.shape[2], f"{q} and {k} are not of one width")
        self.require_types(q, k)
        return [((q.shape[0] // heads, pattern.num_blocks, *pattern.block), q.dtype)]

    def evaluate(self, op: NetworkOp, q: Array, k: Array) -> Array:
        """The products in NumPy, block by block."""
        pattern, heads, _ = self.pattern_of(op)
        head, down, across = _places(pattern, heads)
        left, right = _in_blocks(q, heads, pattern.block[0]), _in_blocks(k, heads, pattern.block[1])
        return np.asarray(np.einsum("nbid,nbjd->nbij", left[:, head, down], right[:, head, across]))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One dense × dense → sparse product."""
        q, k = (to[v] for v in op.inputs)
        pattern, _, rows = self.pattern_of(op)
        (groups, _, width), columns, (bm, bn) = q.shape, pattern.shape[1], pattern.block
        types = (q.dtype, op.output.dtype, self.planning(to, op)["partials"])
        whole = stack_patterns([pattern] * op.output.shape[0])
        dim, block = (rows, width, columns), (bm, gcd(width, _WIDTH), bn)
        params = BSMatMulParams(dim, block, whole, *types, numGroups=groups)
        right = k.transpose((0, 2, 1)).reshape((groups * width, columns))
        made = experimental.bs_mat_mul(to.graph, params, q.reshape((groups * rows, width)), right, to.prog)
        return made.reshape(op.output.shape)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Products of the gradient with the other side."""
        grad, (q, k), pattern = only(grads), op.inputs, op.attrs["pattern"]
        by_q = block_product(net, grad, k, pattern) if wanted[0] else None
        by_k = block_product(net, grad, q, pattern, transposed=True) if wanted[1] else None
        return [by_q, by_k]


@rule("block_product")
class BlockProduct(_OfBlocks):
    """P · X, or Pᵀ · X, of blocks [batch, blocks, *block] and x [groups, rows, width]."""

    operands = 2
    attributes: ClassVar = {**_OfBlocks.attributes, "transposed": bool}
    planned = True

    def types(self, op: NetworkOp) -> Types:
        """[groups, rows, width]."""
        blocks, x = op.inputs
        pattern, heads, rows = self.pattern_of(op)
        read, made = (rows, pattern.shape[1]) if op.attrs["transposed"] else (pattern.shape[1], rows)
        self.require_blocks(op, blocks)
        self.require_rows(op, x, read, blocks.shape[0])
        self.require_types(blocks, x)
        return [((blocks.shape[0] * heads, made, x.shape[2]), x.dtype)]

    def evaluate(self, op: NetworkOp, blocks: Array, x: Array) -> Array:
        """The product in NumPy, block by block."""
        pattern, heads, _ = self.pattern_of(op)
        (head, to, at), (height, width) = _places(pattern, heads), pattern.block
        if op.attrs["transposed"]:
            to, at, height, width = at, to, width, height
            blocks = blocks.swapaxes(2, 3)
        read = _in_blocks(x, heads, width)[:, head, at]
        grid = op.output.shape[1] // height
        made = np.zeros((heads, grid, len(blocks), height, x.shape[2]), np.result_type(blocks, x))
        np.add.at(made, (head, to), np.einsum("nbij,nbjd->bnid", blocks, read))
        return made.transpose((2, 0, 1, 3, 4)).reshape(op.output.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One dense × sparse → dense product, of transposes: the blocks are its right operand."""
        blocks, x = (to[v] for v in op.inputs)
        pattern, _, rows = self.pattern_of(op)
        (groups, read, width), (bm, bn) = x.shape, pattern.block
        transposed, made = op.attrs["transposed"], op.output.shape[1]
        types = (x.dtype, op.output.dtype, self.planning(to, op)["partials"])
        whole = stack_patterns([pattern] * blocks.shape[0])
        dim = (width, rows, pattern.shape[1]) if transposed else (width, pattern.shape[1], rows)
        block = (gcd(width, _WIDTH), *((bm, bn) if transposed else (bn, bm)))
        params = BSMatMulParams(dim, block, whole, not transposed, *types, numGroups=groups)
        left = x.transpose((0, 2, 1)).reshape((groups * width, read))
        right = blocks.reshape((whole.num_blocks, bm * bn))
        turned = experimental.bs_mat_mul(to.graph, params, left, right, to.prog)
        return turned.reshape((groups, width, made)).transpose((0, 2, 1))

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Scores of the gradient and the other side, and the product of the transpose."""
        grad, (blocks, x), pattern = only(grads), op.inputs, op.attrs["pattern"]
        transposed = op.attrs["transposed"]
        pair = (x, grad) if transposed else (grad, x)
        by_blocks = block_scores(net, *pair, pattern) if wanted[0] else None
        by_x = block_product(net, blocks, grad, pattern, transposed=not transposed) if wanted[1] else None
        return [by_blocks, by_x]


class _RowsOfBlocks(_OfBlocks):
    """A kind that makes blocks of blocks, row by row."""

    attributes: ClassVar = {**_OfBlocks.attributes, "mask": str}

    def types(self, op: NetworkOp) -> Types:
        """The shape of the operands."""
        require(op.attrs["mask"] in _MASKS, f"a mask is one of {', '.join(_MASKS)}, not {op.attrs['mask']!r}")
        for value in op.inputs:
            self.require_blocks(op, value)
        self.require_types(*op.inputs)
        require(all(v.shape == op.inputs[0].shape for v in op.inputs), f"{op.inputs} differ in shape")
        return [op.inputs[0].type]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One call on blocks of all groups."""
        pattern, heads, rows = self.pattern_of(op)
        batch = op.output.shape[0]
        whole = stack_patterns([pattern] * batch)
        flat = [to[v].reshape((whole.num_blocks, pattern.block[0] * pattern.block[1])) for v in op.inputs]
        call: Callable[..., Tensor] = experimental.bs_softmax if len(flat) == 1 else experimental.bs_softmax_grad
        made = call(
            to.graph,
            *flat,
            dim=(rows, pattern.shape[1]),
            block_size=pattern.block,
            sparsity=whole,
            prog=to.prog,
            sub_block_mask=op.attrs["mask"],
            groups=batch * heads,
        )
        return made.reshape(op.output.shape)


@rule("block_softmax")
class BlockSoftmax(_RowsOfBlocks):
    """Softmax of each row over its held blocks; zeros where all of it is hidden."""

    def evaluate(self, op: NetworkOp, scores: Array) -> Array:
        """The stable form in NumPy."""
        pattern, heads, _ = self.pattern_of(op)
        live = _live(pattern, heads, op.attrs["mask"])
        shown = np.where(live, scores, -np.inf)
        top = _by_rows(pattern, shown, np.maximum, -np.inf)
        powers = np.where(live, np.exp(shown - np.where(np.isneginf(top), 0, top)), 0)
        total = _by_rows(pattern, powers, np.add, 0.0)
        return np.asarray(powers / np.where(total == 0, 1, total), scores.dtype)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One gradient op on the output."""
        return [net.emit_like("block_softmax_grad", [op.output, only(grads)], op.output, **op.attrs)]


@rule("block_softmax_grad")
class BlockSoftmaxGrad(_RowsOfBlocks):
    """y · (grad − Σ grad · y) over the held blocks of each row."""

    operands = 2

    def evaluate(self, op: NetworkOp, y: Array, grad: Array) -> Array:
        """The gradient in NumPy."""
        pattern, heads, _ = self.pattern_of(op)
        live = _live(pattern, heads, op.attrs["mask"])
        total = _by_rows(pattern, np.where(live, y * grad, 0), np.add, 0.0)
        return np.asarray(np.where(live, y * (grad - total), 0), y.dtype)


def _places(pattern: Pattern, heads: int) -> tuple[Array, Array, Array]:
    """Head, block row in it and block column of each block."""
    per_head = pattern.grid[0] // heads
    return pattern.rows // per_head, pattern.rows % per_head, pattern.columns


def _in_blocks(operand: Array, heads: int, height: int) -> Array:
    """[batch · heads, rows, width] as [batch, heads, block rows, rows of a block, width]."""
    groups, rows, width = operand.shape
    return operand.reshape((groups // heads, heads, rows // height, height, width))


def _by_rows(pattern: Pattern, blocks: Array, combine: np.ufunc, first: float) -> Array:
    """Combination of each row's elements [batch, blocks, rows of a block, 1], in the place of each of its blocks."""
    made = np.full((pattern.grid[0], len(blocks), pattern.block[0]), first, blocks.dtype)
    combine.at(made, pattern.rows, combine.reduce(blocks, axis=3).swapaxes(0, 1))
    return made[pattern.rows].swapaxes(0, 1)[..., None]


def _live(pattern: Pattern, heads: int, mask: str) -> Array:
    """True for elements of held blocks that a mask does not hide, [blocks, *block]."""
    whole = np.tri(*split_stack(pattern, heads)[0].shape, k=0 if mask == CAUSAL else -1, dtype=bool)
    kept = {NO_MASK: np.ones_like(whole), CAUSAL: whole}.get(mask, ~whole)
    return pattern.values_of(np.tile(kept, (heads, 1)))
