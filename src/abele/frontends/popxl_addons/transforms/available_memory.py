"""Shares of tile memory that products plan with, for all products of an IPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from abele.frontends.popxl import Ir
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.operations import GraphOperation
from abele.network.ir import NetworkOp, OpBlock
from abele.network.ir.op import PlanHint
from abele.network.registry import RULES


def set_available_memory_proportion_by_ipu(ir: Ir, proportions: Sequence[float] | Mapping[int, float]) -> None:
    """Let products and convolutions of each IPU plan with a share of tile memory, unless they were given one.

    Args:
        ir: Program, all of whose graphs are made.
        proportions: Share per IPU, above 0 and at most 1: a sequence, or by number.

    Raises:
        GraphArgumentError: A share that is none, or an IPU with products but no share.
    """
    shares = dict(proportions) if isinstance(proportions, Mapping) else dict(enumerate(proportions))
    for ipu, share in shares.items():
        if not 0 < share <= 1:
            raise GraphArgumentError(f"the available memory proportion of IPU {ipu} is {share}: above 0 and at most 1")
    for graph in ir.graphs:
        for op in graph.operations:
            if not isinstance(op, GraphOperation) or not any(RULES[o.kind].planned for o in op.block.ops):
                continue
            ipu = op.place.ipu or 0
            if ipu not in shares:
                raise GraphArgumentError(
                    f"{op.name()} is on IPU {ipu}, there are proportions for {', '.join(map(str, shares)) or 'none'}"
                )
            block = op.block
            op.block = OpBlock(block.parameters, tuple(_hinted(o, shares[ipu]) for o in block.ops), block.results)


def _hinted(op: NetworkOp, share: float) -> NetworkOp:
    """An op that plans with a share, unless it has one."""
    if not RULES[op.kind].planned or (op.hint is not None and op.hint.proportion is not None):
        return op
    hint = replace(op.hint or PlanHint(), proportion=float(share))
    return replace(op, attrs=type(op.attrs)({**op.attrs, "hint": hint}))


__all__ = ["set_available_memory_proportion_by_ipu"]
