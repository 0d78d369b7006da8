"""Published limits of inference: batches that ran fit, and those out of memory do not."""

from __future__ import annotations

import pytest

from abele.network import Network, NetworkBuilder, Schedule
from abele.network.ops import build
from abele.numerics import f16, i32
from abele.session import Settings, compile_network
from abele.validation.training.transformer import LayerBuilder, LayerSizes, StagePlan

TOKENS = 256


def bert_base(batch: int) -> Network:
    """BERT-Base that marks the spans of answers, in f16."""
    net, one_ipu = NetworkBuilder(), StagePlan.of_layers((12,))
    sizes = LayerSizes(hidden=768, heads=12, feed_forward=3072)
    layers = LayerBuilder(net, sizes, one_ipu, batch, TOKENS, checkpoints=False, norms_first=False)
    ids, segments = (net.input((batch, TOKENS), i32, name) for name in ("ids", "segments"))
    mask = net.input((batch, 1, 1, TOKENS), f16, "mask")
    with one_ipu.at(net, 0):
        words, places, kinds = (
            layers.weight(name, rows, sizes.hidden)
            for name, rows in (("words", 30_522), ("places", TOKENS), ("kinds", 2))
        )
        x = layers.added(build.look_up(net, words, ids), build.look_up(net, kinds, segments))
        x = layers.added(x, build.reshape(net, places, (1, TOKENS, sizes.hidden)))
        x = layers.norm(build.reshape(net, x, (-1, sizes.hidden)), "norm")
    x = layers.layers(x, lambda _: mask)
    with one_ipu.at(net, 0):
        net.output(layers.linear(x, "span", 2))
    return net.finish()


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "fits"), [(16, True), (32, False)])
def test_bert_base__sequences_of_256__fits_as_published(batch: int, fits: bool) -> None:
    # PopRT on one chip: 1,657 samples/s in f16 at batch 16, out of memory at 32. It writes every layer out.
    settings = Settings(system="c600", partials="f16", allow_out_of_memory=True, shared_functions=False)
    report = compile_network(bert_base(batch), Schedule(), settings=settings).executable.report
    needed = int(report.memory.by_tile.max())
    assert (needed <= report.memory.available_bytes) == fits, f"{needed:,} B"
