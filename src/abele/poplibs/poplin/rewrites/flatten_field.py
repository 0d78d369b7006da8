"""Convolutions without a kernel as plain products: samples and field as one dimension, in fewer and longer pieces.

Without a kernel no output position mixes with another, so [batch, field] is one dimension of rows. The planner can then
cut it anywhere instead of per sample and per field dimension: parts are more even, and a slice is one piece of memory.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from abele.graph import Tensor
from abele.poplibs.poplin.contraction.binding import Binding
from abele.poplibs.poplin.lowering.call import ContractionCall, Meaning


def flat_rows(call: ContractionCall) -> ContractionCall:
    """A convolution or its input gradient without a kernel, with samples and field together as the batch.

    Args:
        call: One whose input is [batch, channels, *field], and whose axes are all pointwise.
    """
    batch, _, *field = call.x.tensor.shape
    problem = replace(call.problem, batch=batch * prod(field), axes=())
    x = Binding(flattened(call.x.tensor), (call.x.roles[1], "b"), call.x.groups)
    w = Binding(call.w.tensor.reshape(call.w.tensor.shape[:2]), call.w.roles[:2], call.w.groups)

    def restore(out: Tensor) -> Tensor:
        return out.reshape((out.shape[0], batch, *field)).moveaxis(0, 1)

    seen = call.meaning or Meaning(call.problem, call.x, call.w, call.out_roles, restore)
    meaning = replace(seen, restore=restore)
    return replace(call, problem=problem, x=x, w=w, out_roles=(call.out_roles[1], "b"), meaning=meaning)


def flat_sum(call: ContractionCall) -> ContractionCall:
    """A weight gradient without a kernel, summed over samples and field together.

    Args:
        call: One whose operands are both [batch, channels, *field], and whose axes are all pointwise.
    """
    batch, _, *field = call.x.tensor.shape
    problem = replace(call.problem, in_channels=batch * prod(field), axes=())
    x, w = (Binding(flattened(b.tensor), (b.roles[1], "ci"), b.groups) for b in (call.x, call.w))
    like = None if call.like is None else call.like.reshape(call.like.shape[:2])

    def restore(out: Tensor) -> Tensor:
        return out.reshape((*out.shape, *(1 for _ in field)))

    meaning = Meaning(call.problem, call.x, call.w, call.out_roles, restore)
    return replace(call, problem=problem, x=x, w=w, out_roles=call.out_roles[:2], like=like, meaning=meaning)


def flattened(tensor: Tensor) -> Tensor:
    """[batch, channels, *field] as [channels, batch · field]."""
    return tensor.moveaxis(1, 0).flatten(1)
