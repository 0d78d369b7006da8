"""The most likely label sequences of sequences of class probabilities, by popnn's beam search."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import OpRule, Types, require, rule
from abele.numerics import u32
from abele.poplibs.popnn import ctc_infer

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def ctc_decode(
    net: BlockBuilder, log_probs: Value, lengths: Value, *, blank: int, beams: int, paths: int
) -> tuple[Value, ...]:
    """Log-probability [batch, paths], length and labels [batch, paths, time] of the most likely sequences.

    Args:
        net: Network or block to extend.
        log_probs: [time, batch, classes].
        lengths: Valid steps, u32 [batch].
        blank: The class of no label.
        beams: Number of beams that are kept.
        paths: Number of paths that are returned.
    """
    steps, batch, _ = log_probs.shape
    types = [((batch, paths), log_probs.dtype), ((batch, paths), u32), ((batch, paths, steps), u32)]
    return net.emit_many("ctc_decode", [log_probs, lengths], types, blank=blank, beams=beams, paths=paths)


@rule("ctc_decode")
class CtcDecode(OpRule):
    """Beam search over labels; results are probabilities, lengths and labels, most likely first."""

    operands = 2
    attributes: ClassVar = {"blank": int, "beams": int, "paths": int}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """Probabilities, lengths, labels."""
        log_probs, lengths = op.inputs
        require(log_probs.ndim == 3, f"{log_probs} is not [time, batch, classes]")
        steps, batch, _ = log_probs.shape
        require(lengths.type == ((batch,), u32), f"the lengths are {lengths}")
        paths = (batch, op.attrs["paths"])
        return [(paths, log_probs.dtype), (paths, u32), ((*paths, steps), u32)]

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One library call."""
        log_probs, lengths = op.inputs
        steps, batch, classes = log_probs.shape
        plan = ctc_infer.plan(to.graph, log_probs.dtype, batch, steps, classes, op.attrs["beams"])
        return tuple(
            ctc_infer.beam_search_decoder_log_probabilities(
                to.graph,
                to[log_probs],
                to[lengths],
                to.prog,
                blank_class=op.attrs["blank"],
                beam_width=op.attrs["beams"],
                top_paths=op.attrs["paths"],
                plan=plan,
            )
        )
