"""The choice of blocks by cycles: what is chosen is the fastest of what was compiled, and programs compute the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from abele.expr import derivative, select
from abele.machine import System, systems
from abele.network import Group, Network, NetworkBuilder, Schedule, Sgd
from abele.network.blocked_attention import MaskedAttention
from abele.network.ops import build
from abele.network.passes.skip_hidden import SkipHidden
from abele.network.score_blocks import RowBlocks
from abele.numerics import bool_, f32
from abele.session import Settings, compile_network
from abele.session.compiling import MOST_WAYS, ModelledBlocks, _alone

ROWS = 128
PLACE = np.arange(ROWS)
SEQUENCES = PLACE[:, None] // 32 == PLACE // 32
CAUSAL = np.tri(ROWS, dtype=bool)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path))


def chip(tiles: int = 16) -> System:
    return systems.bow_2000().evolve(ipu={"num_tiles": tiles}).with_ipus(1)


def attention(mask: np.ndarray, *, trained: bool = False) -> Network:
    net = NetworkBuilder()
    shape = 1, 2, ROWS, 16
    if trained:
        x = net.input(shape, f32, "x")
        product = derivative.arg(0) * derivative.arg(1)
        query, key, value = (
            build.map_(net, product, [x, net.parameter(shape[-1:], f32, name)]) for name in ("query", "key", "value")
        )
    else:
        query, key, value = (net.input(shape, f32, name) for name in ("query", "key", "value"))
    scores = build.matmul(net, query, build.transpose(net, key))
    hidden = select(derivative.arg(1), derivative.arg(0), -np.inf)
    scores = build.map_(net, hidden, [scores, net.constant(mask, bool_)])
    result = build.matmul(net, build.softmax(net, scores, -1), value)
    net.output(result)
    if trained:
        net.loss = build.reduce(net, build.map_(net, derivative.arg(0) * derivative.arg(0), [result]), range(4))
    return net.finish()


def cycles(net: Network, **settings: object) -> int:
    given = Settings(system=chip(), allow_out_of_memory=True, **settings)  # type: ignore[arg-type]
    steps = compile_network(net, settings=given).executable.report.steps
    own = np.array([kind != "stream" for kind in steps["kind"]])
    return int((steps["cycles"] * steps["executions"])[own].sum())


class Watched(ModelledBlocks):
    """Remembers what it was asked."""

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        found = super().choose(attention, ways)
        SEEN.append((attention, list(ways), found))
        return found


SEEN: list[tuple[MaskedAttention, list[RowBlocks], RowBlocks | None]] = []


@pytest.fixture
def seen() -> Iterator[list[tuple[MaskedAttention, list[RowBlocks], RowBlocks | None]]]:
    SEEN.clear()
    yield SEEN
    SEEN.clear()


def test_skip_hidden__sequences__takes_fewer_cycles() -> None:
    net = attention(SEQUENCES)
    assert cycles(net, skip_hidden=True) < 0.6 * cycles(net)


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask", [SEQUENCES, CAUSAL], ids=["sequences", "causal"])
def test_modelled_blocks__ways__are_weighed_by_cycles(
    seen: list[tuple[MaskedAttention, list[RowBlocks], RowBlocks | None]], mask: np.ndarray, training: bool
) -> None:
    chooser = Watched(Settings(system=chip()), training=training)
    SkipHidden(chooser).run(attention(mask))
    ((found, ways, chosen),) = seen
    alone = _alone(found)
    costs = {way: chooser.cycles(alone, way) for way in (None, *ways[:MOST_WAYS])}
    assert costs[chosen] == min(costs.values())


@pytest.mark.usefixtures("whole_machine")
def test_modelled_blocks__few_scores_for_each_tile__compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelledBlocks, "_measured", lambda *_: pytest.fail("it was compiled"))
    net = attention(SEQUENCES)
    assert SkipHidden(ModelledBlocks(Settings(), training=False)).run(net) is net


def test_modelled_blocks__asked_again__finds_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    net, chooser = attention(SEQUENCES), ModelledBlocks(Settings(system=chip()), training=False)
    first = SkipHidden(chooser).run(net)
    monkeypatch.setattr(ModelledBlocks, "_measured", lambda *_: pytest.fail("it was compiled again"))
    assert SkipHidden(chooser).run(net) == first


@pytest.mark.slow
def test_skip_hidden__training__leaves_scores_out_forward_and_backward() -> None:
    net = attention(SEQUENCES, trained=True)

    def of(skip: bool) -> int:
        groups = [Group(Sgd(), net.parameters)]
        given = Settings(system=chip(), skip_hidden=skip, allow_out_of_memory=True)
        report = compile_network(net, Schedule(), groups=groups, settings=given).executable.report
        streams = np.char.startswith(report.ops["name"].astype(str), "stream ")
        return report.total_cycles - int(report.ops["cycles"][streams].sum())

    assert of(True) < 0.6 * of(False)
