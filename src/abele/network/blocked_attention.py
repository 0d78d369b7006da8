"""Attention in blocks: the ops of scores, softmax and product, made anew for blocks of rows with some of their keys.

Blocks of one size run together, as further groups of the same products: what each of them reads is stacked along a new
first dimension. Which part of an operand a block needs, rules say (:meth:`OpRule.needs`), as they do for ``narrow``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from abele.arrays import Array
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import Digit, ValuePart, some_digits, take
from abele.network.ops import build
from abele.network.registry import rule_of
from abele.network.score_blocks import RowBlock, RowBlocks

STACKED = frozenset({"map", "cast", "reshape", "matmul"})
"""Kinds that run for several blocks at once."""


@dataclass(frozen=True)
class MaskedAttention:
    """Ops of an attention: scores, changes to them, a softmax over keys, and a product with values.

    Attributes:
        ops: Those that scores are made by, by the value that each makes, in order, from products to before the softmax.
        known: Elements of what they read, where it is known.
        softmax: The softmax.
        product: The product of its result, in the shape [groups, rows, keys], with values.
    """

    ops: Mapping[Value, NetworkOp]
    known: Mapping[Value, Array]
    softmax: NetworkOp
    product: NetworkOp

    @property
    def scores(self) -> Value:
        """Operand of the softmax."""
        return self.softmax.inputs[0]

    def rows_of(self, block: RowBlock) -> ValuePart:
        """The rows of a block, with all keys, in the shape of the product's operand."""
        shape = self.scores.shape
        part = ValuePart.whole(shape).with_dim(len(shape) - 2, some_digits(shape[-2], block.begin, block.end))
        return part.reshaped(shape, self.product.inputs[0].shape)

    def can_split(self) -> bool:
        """True if the rows of a block are rows of the product."""
        shape, flat = self.scores.shape, self.product.inputs[0].shape
        if len(shape) < 2 or flat[-1] != shape[-1]:
            return False
        part = self.rows_of(RowBlock(0, 1, 0, 1))
        others = part.dims[0], part.dims[2]
        return part.size * shape[-2] == self.scores.size and all(d.is_whole for digits in others for d in digits)


def emit_blocked(
    net: BlockBuilder, attention: MaskedAttention, blocking: RowBlocks, values: Mapping[Value, Value]
) -> Value:
    """Append an attention block by block; gives its result.

    Args:
        net: Network or block to extend.
        attention: The attention.
        blocking: Its blocks.
        values: For each value that it reads, what is read in its place.
    """
    stacks = _Stacks(net, attention.ops, values)
    pieces: list[tuple[RowBlock, Value]] = []
    for blocks in blocking.by_size:
        made = _of_one_size(stacks, attention, blocks)
        if len(blocking.by_size) == 1:
            return _in_order(net, attention, blocks, made)
        for number, block in enumerate(blocks):
            pieces.append((block, build.slice_(net, made, 0, number, number + 1)))
    pieces.sort(key=lambda piece: piece[0])
    return _joined(net, attention, pieces)


def _of_one_size(stacks: _Stacks, attention: MaskedAttention, blocks: Sequence[RowBlock]) -> Value:
    """Results of blocks of one size, [blocks, groups, rows, width]."""
    net, softmax, product = stacks.net, attention.softmax, attention.product
    shape = attention.scores.shape
    wanted = [
        ValuePart.whole(shape)
        .with_dim(len(shape) - 2, some_digits(shape[-2], b.begin, b.end))
        .with_dim(len(shape) - 1, some_digits(shape[-1], b.low, b.high))
        for b in blocks
    ]
    with net.at(softmax.debug, stage=softmax.stage, place=softmax.place):
        scores = stacks.expanded(stacks.of(attention.scores, wanted), len(blocks))
        shares = net.emit_like(softmax.kind, [scores], scores, **softmax.attrs)
    with net.at(product.debug, stage=product.stage, place=product.place, hint=product.hint):
        groups, keys = product.inputs[0].shape[0], blocks[0].size[1]
        rows = attention.rows_of(blocks[0]).shape[1]
        whole = ValuePart.whole(product.inputs[1].shape)
        parts = [whole.with_dim(1, some_digits(shape[-1], b.low, b.high)) for b in blocks]
        read = stacks.expanded(stacks.of(product.inputs[1], parts), len(blocks))
        width = read.shape[-1]
        count = len(blocks) * groups
        made = build.matmul(
            net, build.reshape(net, shares, (count, rows, keys)), build.reshape(net, read, (count, keys, width))
        )
        return build.reshape(net, made, (len(blocks), groups, rows, width))


class _Stacks:
    """Parts of values, one per block, along a first dimension; values common to all blocks have one."""

    def __init__(self, net: BlockBuilder, ops: Mapping[Value, NetworkOp], values: Mapping[Value, Value]) -> None:
        self.net, self._ops, self._values = net, ops, values

    def of(self, value: Value, parts: Sequence[ValuePart]) -> Value:
        """[blocks or 1, *shape of a part]."""
        op = self._ops.get(value)
        if op is None:
            return self._taken(value, parts)
        needs = [rule_of(op).needs(op, part) for part in parts]
        if any(made != part or None in read for part, (made, read) in zip(parts, needs, strict=True)):
            return self._taken(value, parts)
        read = [self.of(v, [part for _, one in needs if (part := one[n]) is not None]) for n, v in enumerate(op.inputs)]
        with self.net.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
            return self._again(op, read, parts[0].shape)

    def expanded(self, stack: Value, count: int) -> Value:
        """The stack with so many blocks."""
        return build.expand(self.net, stack, (count, *stack.shape[1:]))

    def _again(self, op: NetworkOp, read: list[Value], shape: tuple[int, ...]) -> Value:
        net, count = self.net, max(v.shape[0] for v in read)
        if op.kind == "map":
            full = [build.reshape(net, v, (v.shape[0], *[1] * (1 + len(shape) - v.ndim), *v.shape[1:])) for v in read]
            return net.emit("map", full, (count, *shape), op.output.dtype, **op.attrs)
        if op.kind == "cast":
            return build.cast(net, read[0], op.output.dtype)
        if op.kind == "reshape":
            return build.reshape(net, read[0], (count, *shape))
        a, b = (self.expanded(v, count) for v in read)
        groups = count * (a.shape[1] if a.ndim == 4 else 1)
        sides = [build.reshape(net, v, (groups, *v.shape[-2:])) for v in (a, b)]
        return build.reshape(net, build.matmul(net, *sides), (count, *shape))

    def _taken(self, value: Value, parts: Sequence[ValuePart]) -> Value:
        net, read = self.net, self._values[value]
        with net.at(stage=read.stage, place=read.place):
            if len(set(parts)) == 1:
                return build.reshape(net, take(net, read, parts[0]), (1, *parts[0].shape))
            dim = _tiled(parts)
            if dim is None:
                ones = [build.reshape(net, take(net, read, part), (1, *part.shape)) for part in parts]
                return build.concat(net, ones, 0)
            # Blocks that follow each other and leave nothing out are one view.
            all_of = take(net, read, parts[0].with_whole(dim))
            before, after = all_of.shape[:dim], all_of.shape[dim + 1 :]
            split = build.reshape(net, all_of, (*before, len(parts), parts[0].shape[dim], *after))
            order = [dim, *(d for d in range(split.ndim) if d != dim)]
            return build.permute(net, split, order)


def _tiled(parts: Sequence[ValuePart]) -> int | None:
    """The dimension that parts divide among themselves, one after the other, if they are the same in all others."""
    first = parts[0]
    varying = [d for d in range(len(first.dims)) if any(p.dims[d] != first.dims[d] for p in parts)]
    if len(varying) != 1:
        return None
    dim = varying[0]
    digits = [p.dims[dim] for p in parts]
    if any(len(d) != 1 for d in digits):
        return None
    (one,) = digits[0]
    follows = [d[0].low for d in digits] == list(range(0, one.extent, one.count))
    return dim if follows and one.count * len(parts) == one.extent else None


def _in_order(net: BlockBuilder, attention: MaskedAttention, blocks: Sequence[RowBlock], made: Value) -> Value:
    """Results of blocks that are all of one size, [blocks, groups, rows, width], in the shape of the product."""
    digits, place = _digits(attention, blocks[0])
    split = build.reshape(net, made, (*made.shape[:2], *(d.count for d in digits), made.shape[-1]))
    # The blocks come in front of the digit that they are parts of.
    order = [*range(1, 2 + place), 0, *range(2 + place, split.ndim)]
    return build.reshape(net, build.permute(net, split, order), attention.product.output.shape)


def _joined(net: BlockBuilder, attention: MaskedAttention, pieces: Sequence[tuple[RowBlock, Value]]) -> Value:
    """Results of blocks, [1, groups, rows, width] each and in the order of rows, in the shape of the product."""
    parts = []
    for block, made in pieces:
        digits, place = _digits(attention, block)
        parts.append(build.reshape(net, made, (made.shape[1], *(d.count for d in digits), made.shape[-1])))
    return build.reshape(net, build.concat(net, parts, 1 + place), attention.product.output.shape)


def _digits(attention: MaskedAttention, block: RowBlock) -> tuple[tuple[Digit, ...], int]:
    """Digits of the product's rows, and the one that blocks are ranges of."""
    digits = attention.rows_of(block).dims[1]
    places = [n for n, digit in enumerate(digits) if not digit.is_whole]
    return digits, places[0] if places else len(digits) - 1
