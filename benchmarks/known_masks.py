"""Attention whose mask is known when it is compiled: modelled cycles whole and in blocks, and which is chosen.

    python benchmarks/known_masks.py                       # forward, on one IPU of a Bow-2000, f16
    python benchmarks/known_masks.py --training --rows 512

Cycles are those of the compiled program of the attention alone, without streams; nothing runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from abele.expr import derivative, select
from abele.network import Network, NetworkBuilder
from abele.network.blocked_attention import MaskedAttention
from abele.network.ops import build
from abele.network.passes.skip_hidden import SkipHidden
from abele.network.score_blocks import RowBlocks
from abele.numerics import bool_, f16
from abele.session import Settings
from abele.session.compiling import ModelledBlocks

WIDTH = 64


def main() -> None:
    """Print a line for every way of every mask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=512, help="tokens of a row")
    parser.add_argument("--samples", type=int, default=2, help="rows of a batch")
    parser.add_argument("--heads", type=int, default=16, help="heads, of 64 elements each")
    parser.add_argument("--training", action="store_true", help="with the gradients")
    parser.add_argument("--system", default="bow-2000", help="the machine")
    given = parser.parse_args()
    chooser = Told(Settings(system=given.system, partials="f16"), training=given.training)
    for name, mask in masks(given.rows).items():
        print(f"{name} ({1 - mask.mean():.0%} hidden)")
        SkipHidden(chooser).run(attention(mask, given.samples, given.heads))


def masks(rows: int) -> dict[str, npt.NDArray[np.bool_]]:
    """Masks of [rows, rows]."""
    place = np.arange(rows)
    uneven = np.searchsorted(np.cumsum([0.58, 0.29]) * rows, place, side="right")
    return {
        "4 equal sequences": place[:, None] * 4 // rows == place * 4 // rows,
        "sequences of 58, 29 and 13 %": uneven[:, None] == uneven,
        "window of a sixteenth either way": abs(place[:, None] - place) < rows // 16,
        "causal": np.tri(rows, dtype=bool),
    }


def attention(mask: npt.NDArray[np.bool_], samples: int, heads: int) -> Network:
    """Softmax of scores that a mask is chosen by, times values, in f16."""
    net = NetworkBuilder()
    shape = samples, heads, len(mask), WIDTH
    query, key, value = (net.input(shape, f16, name) for name in ("query", "key", "value"))
    scores = build.matmul(net, build.map_(net, derivative.arg(0) * WIDTH**-0.5, [query]), build.transpose(net, key))
    hidden = select(derivative.arg(1), derivative.arg(0), -np.inf)
    scores = build.map_(net, hidden, [scores, net.constant(mask, bool_, "mask")])
    net.output(build.matmul(net, build.softmax(net, scores, -1), value))
    return net.finish()


class Told(ModelledBlocks):
    """Says what is weighed."""

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        """As usual."""
        found = super().choose(attention, ways)
        if found is None:
            print("  whole is chosen")
        else:
            print(f"  chosen: {len(found.blocks)} blocks of {len(found.by_size)} sizes")
        return found

    def cycles(self, net: Network, way: RowBlocks | None) -> int:
        """As usual."""
        cycles = super().cycles(net, way)
        shape = net.outputs[0].shape
        whole = shape[-2] ** 2
        told = "whole" if way is None else f"{len(way.blocks)} blocks, {way.scores / whole:.0%} of the scores"
        print(f"  {told:<40}{cycles:>12,} cycles", flush=True)
        return cycles


if __name__ == "__main__":
    main()
