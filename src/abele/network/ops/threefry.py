"""Threefry's random words, as ``threefry2x32`` draws them: ciphers of the element's number under a key of two words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor, concat
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import Gradients, OpRule, Types, broadcast, require, rule
from abele.numerics import u32
from abele.poplibs.poprand.threefry import GROUPS, PARITY, ROTATIONS, threefry_words

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def threefry(net: BlockBuilder, k0: Value, k1: Value, c0: Value, c1: Value) -> tuple[Value, Value]:
    """Two random words for each element: the numbers ``c0``, ``c1`` encrypted under the keys ``k0``, ``k1``.

    Args:
        net: The network to extend.
        k0: First words of keys, u32; all operands broadcast together.
        k1: Second words of keys.
        c0: High words of the numbers.
        c1: Low words of the numbers.
    """
    shape = broadcast(*(v.shape for v in (k0, k1, c0, c1)))
    first, second = net.emit_many("threefry", [k0, k1, c0, c1], [(shape, u32)] * 2)
    return first, second


def random_words(
    net: BlockBuilder, keys: Value, shape: Sequence[int], *, pairs: bool = False, first: Value | None = None
) -> Value:
    """Random words of each key: element i is made of the number i.

    Args:
        net: The network to extend.
        keys: u32[..., 2].
        shape: Of the words of one key.
        pairs: True for both words of each element, in a last dimension of two; False for their exclusive or.
        first: Number of the first element, u32 of the shape of ``keys`` without the last dimension; by default zero.

    Returns:
        u32: the dimensions of ``keys`` but the last, then ``shape``, then 2 where ``pairs``.
    """
    batch = keys.shape[:-1]
    made = (*batch, *shape, *((2,) if pairs else ()))
    inputs = [keys] if first is None else [keys, first]
    return net.emit("random_words", inputs, made, u32, words=tuple(shape), pairs=pairs)


def encrypted(k0: Array, k1: Array, c0: Array, c1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 of 20 rounds in NumPy, on u32 arrays that broadcast."""
    shape = np.broadcast_shapes(k0.shape, k1.shape, c0.shape, c1.shape) or (1,)
    k0, k1, c0, c1 = (np.broadcast_to(v, shape) for v in (k0, k1, c0, c1))
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY))
    x0, x1 = c0 + k0, c1 + k1
    for group in range(GROUPS):
        for bits in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(bits)) | (x1 >> np.uint32(32 - bits))) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + (schedule[(group + 2) % 3] + np.uint32(group + 1))
    return x0, x1  # one dimension where all were numbers


class _Cipher(OpRule):
    """A kind that draws: its results have no derivative."""

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients: bits have none."""
        return [None] * len(op.inputs)


@rule("threefry")
class Threefry(_Cipher):
    """Both words of numbers under keys, all of which broadcast together."""

    operands = 4

    def types(self, op: NetworkOp) -> Types:
        """Two words of the shape that the operands broadcast to."""
        require(all(v.dtype == u32 for v in op.inputs), "keys and numbers are u32")
        return [(broadcast(*(v.shape for v in op.inputs)), u32)] * 2

    def evaluate(self, op: NetworkOp, k0: Array, k1: Array, c0: Array, c1: Array) -> tuple[Array, Array]:
        """The cipher in NumPy."""
        first, second = (word.reshape(op.outputs[0].shape) for word in encrypted(k0, k1, c0, c1))
        return first, second

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """Five maps."""
        k0, k1, c0, c1 = (to[v] for v in op.inputs)
        out = op.outputs[0]
        return threefry_words(to.graph, (k0, k1), (c0, c1), to.prog, shape=out.shape, like=to.like(out))


@rule("random_words")
class RandomWords(_Cipher):
    """Words of the elements' numbers under each of some keys: pairs, or the exclusive or of both."""

    operands = (1, 2)
    attributes: ClassVar = {"words": tuple, "pairs": bool}

    def types(self, op: NetworkOp) -> Types:
        """The keys' dimensions, those of the words, and two for pairs."""
        keys, shape = op.inputs[0], op.attrs["words"]
        require(keys.dtype == u32 and keys.shape[-1:] == (2,), f"keys are u32[..., 2], not {keys}")
        if len(op.inputs) > 1:
            first = op.inputs[1]
            require(first.type == (keys.shape[:-1], u32), f"each key has a u32 to begin with, not {first}")
        return [((*keys.shape[:-1], *shape, *((2,) if op.attrs["pairs"] else ())), u32)]

    def evaluate(self, op: NetworkOp, keys: Array, first: Array | None = None) -> Array:
        """The cipher in NumPy."""
        shape = op.attrs["words"]
        single = (1,) * len(shape)
        k0, k1 = (keys[..., n].reshape((*keys.shape[:-1], *single)) for n in range(2))
        number = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
        if first is not None:
            number = number + first.reshape((*first.shape, *single))
        one, other = encrypted(k0, k1, np.zeros((), np.uint32), number)
        return (np.stack([one, other], axis=-1) if op.attrs["pairs"] else one ^ other).reshape(op.output.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """Five maps; pairs are views of their results side by side."""
        keys, shape, pairs = to[op.inputs[0]], op.attrs["words"], op.attrs["pairs"]
        batch = keys.shape[:-1]
        words = [keys.slice(n, n + 1, keys.ndim - 1).reshape((*batch, *(1,) * len(shape))) for n in range(2)]
        first = to[op.inputs[1]].reshape((*batch, *(1,) * len(shape))) if len(op.inputs) > 1 else None
        made = threefry_words(
            to.graph,
            (words[0], words[1]),
            None,
            to.prog,
            shape=(*batch, *shape),
            first=first,
            period=math.prod(shape),
            xored=not pairs,
            like=None if pairs else to.like(op.output),
        )
        return concat([t.expand_dims(t.ndim) for t in made], made[0].ndim) if pairs else made[0]
