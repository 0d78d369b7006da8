"""``skip-hidden``: scores hidden by a known mask are not computed, where leaving them out is cheaper.

A causal mask hides half of all scores, a window or sequences with known borders far more. Products, masks and softmax
are made for blocks of rows with the keys that one of them sees (:mod:`abele.network.score_blocks`), each spread over
all tiles, so no tile waits for another whose rows see more. Results are those of the whole attention: a hidden score
has a share of zero, and adds nothing to a sum. As elsewhere, what is hidden is supposed to be finite. For example, 4
blocks of 128 rows with 128, 256, 384 and 512 keys compute 163,840 of 262,144 causal scores, or 62.5 %.

Blocks are further supersteps, with exchange and sync of their own, and small products use tiles worse. So it is a
question of cycles, which is put to the model of the machine: the attention is compiled by itself, whole and in the ways
that leave the most out, and the fastest is taken (:mod:`abele.session.compiling`).

Not changed are masks that are made while the program runs, since tiles have to know their work before; attention with
dropout, whose random numbers are those of the whole; and scores or shares that something else reads, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from abele.network.blocked_attention import STACKED, MaskedAttention, emit_blocked
from abele.network.interpreter import Interpreter
from abele.network.ir import BlockBuilder, Network, NetworkOp, Value
from abele.network.ir.network import contents_of
from abele.network.masked_scores import hidden
from abele.network.passes.base import BlockPass, reading
from abele.network.registry import rule_of
from abele.network.score_blocks import RowBlocks, blockings

MOST_KNOWN = 1 << 24
"""Elements of a mask up to which it is computed to see what it hides."""
MOST_PROPORTION = 0.9
"""Proportion of scores from which leaving the others out is not tried."""


class BlockChooser(Protocol):
    """Chooser of the fastest way to compute an attention."""

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        """One of the ways, or None where the whole attention is as fast."""
        ...


@dataclass(frozen=True)
class SkipHidden(BlockPass):
    """Compute attention in blocks that leave out what known masks hide.

    Attributes:
        chooser: Says which blocks; None to leave every attention whole.
    """

    name: ClassVar[str] = "skip-hidden"
    chooser: BlockChooser | None = None

    def run(self, net: Network) -> Network:
        """The network with attention in blocks; ``net`` itself where none is."""
        if self.chooser is None or not any(op.kind in _SOFTMAX for op in net.walk()):
            return net
        made = super().run(net)
        return net if made.ops == net.ops else made

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append each op, and in the place of an attention's last product the attention in blocks."""
        block = _KnownOps(ops, list(results))
        for op in ops:
            attention = block.attention(op)
            chosen = None if attention is None else self._chosen(attention, block)
            if attention is None or chosen is None:
                into.append(reading(op, values))
                values |= zip(op.outputs, op.outputs, strict=True)
            else:
                with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                    values[op.output] = emit_blocked(into, attention, chosen, values)

    def _chosen(self, attention: MaskedAttention, block: _KnownOps) -> RowBlocks | None:
        assert self.chooser is not None
        shape = attention.scores.shape
        unseen = block.hidden(attention.scores)
        if not unseen.any():
            return None
        everywhere = np.broadcast_to(unseen, (*(1,) * (len(shape) - unseen.ndim), *unseen.shape)[:-2] + shape[-2:])
        visible = np.asarray(~everywhere.reshape(-1, *shape[-2:]).all(0))
        most = MOST_PROPORTION * visible.size
        ways = [way for way in blockings(visible) if way.scores <= most]
        return self.chooser.choose(attention, ways) if ways else None


_SOFTMAX = ("softmax", "safe_softmax")


class _KnownOps:
    """Knowledge of the ops of one block: makers, readers and known values."""

    def __init__(self, ops: Sequence[NetworkOp], results: Sequence[Value]) -> None:
        self._ops = ops
        self._makers = {v: op for op in ops for v in op.outputs}
        self._readers = Counter(v for op in ops for v in op.inputs)
        self._readers.update(results)
        self._known: dict[Value, npt.NDArray[np.generic] | None] = {}

    def attention(self, op: NetworkOp) -> MaskedAttention | None:
        """Attention that ends with an op, if it can be cut into blocks of rows."""
        if op.kind != "matmul" or op.output.ndim != 3:
            return None
        softmax = self._alone(op.inputs[0])
        while softmax is not None and softmax.kind in ("reshape", "cast"):
            if softmax.kind == "cast":
                return None
            softmax = self._alone(softmax.inputs[0])
        if softmax is None or softmax.kind not in _SOFTMAX:
            return None
        ops = self._of_scores(softmax.inputs[0])
        if not any(made.kind == "matmul" for made in ops.values()):
            return None
        read = {v for made in ops.values() for v in made.inputs}
        known = {v: contents for v in read if (contents := self.contents(v)) is not None}
        found = MaskedAttention(ops, known, softmax, op)
        return found if found.can_split() else None

    def _of_scores(self, scores: Value) -> dict[Value, NetworkOp]:
        """The ops behind scores that are as large and that nothing else reads."""
        found: dict[Value, NetworkOp] = {}
        waiting = [scores]
        while waiting:
            value = waiting.pop()
            op = self._alone(value)
            if op is None or op.kind not in STACKED or value.size != scores.size or self.contents(value) is not None:
                continue
            found[value] = op
            if op.kind != "matmul":
                waiting += op.inputs
        return {op.output: op for op in self._ops if op.outputs and op.output in found}

    def _alone(self, value: Value) -> NetworkOp | None:
        """Maker of a value that is read once."""
        return self._makers.get(value) if self._readers[value] == 1 else None

    def hidden(self, scores: Value) -> npt.NDArray[np.bool_]:
        """Mask of the scores that are minus infinity, as far as constants tell."""
        return hidden(scores, self._makers, self.contents)

    def contents(self, value: Value) -> npt.NDArray[np.generic] | None:
        """The elements of a value that depends on constants alone, if it is no larger than masks are."""
        if value not in self._known:
            self._known[value] = None
            self._known[value] = self._computed(value)
        return self._known[value]

    def _computed(self, value: Value) -> npt.NDArray[np.generic] | None:
        op = self._makers.get(value)
        if op is None or value.size > MOST_KNOWN or op.blocks:
            return None
        if op.kind == "constant":
            return contents_of(op)
        if not op.inputs or len(op.outputs) > 1 or not rule_of(op).folds or not rule_of(op).repeats:
            return None
        given = {}
        for operand in op.inputs:
            known = self.contents(operand)
            if known is None:
                return None
            given[operand] = known
        with np.errstate(all="ignore"):
            Interpreter(precise=False).ops([op], given)
        return np.asarray(given[value])
