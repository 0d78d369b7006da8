"""The pass that leaves hidden scores out: results are those of the whole attention, and what it leaves as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from abele.expr import Const, derivative, select
from abele.network import Network, NetworkBuilder, Pipeline, Value, differentiate, evaluate, verify
from abele.network.blocked_attention import MaskedAttention
from abele.network.ops import build
from abele.network.passes.pipeline import in_blocks
from abele.network.passes.skip_hidden import SkipHidden
from abele.network.score_blocks import RowBlocks
from abele.numerics import bool_, f32, i32

ROWS, WIDTH = 64, 8
Array = npt.NDArray[np.generic]
PLACE = np.arange(ROWS)
IDS = np.searchsorted([17, 40, 50], PLACE, side="right")
MASKS = {
    "causal": np.tri(ROWS, dtype=bool),
    "window": abs(PLACE[:, None] - PLACE) < 9,
    "equal sequences": PLACE[:, None] // 16 == PLACE // 16,
    "sequences": IDS[:, None] == IDS,
    "padding": np.broadcast_to(PLACE < 20, (ROWS, ROWS)),
    "nothing seen": np.zeros((ROWS, ROWS), bool),
    "some rows see nothing": (PLACE[:, None] < 30) & (PLACE < 16),
    "by head": np.stack([np.tri(ROWS, dtype=bool), PLACE[:, None] // 32 == PLACE // 32])[None],
}


class Fewest:
    """Always the way with the fewest scores."""

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        return ways[0]


def operands(net: NetworkBuilder, heads: int = 2, shared: int = 2) -> tuple[Value, Value, Value]:
    def made(name: str, count: int) -> Value:
        return net.parameter((2, count, ROWS, WIDTH), f32, name)

    return made("query", heads), made("key", shared), made("value", shared)


def scores_of(net: NetworkBuilder, query: Value, key: Value) -> Value:
    return build.matmul(net, build.map_(net, derivative.arg(0) * 0.3, [query]), build.transpose(net, key))


def hide(net: NetworkBuilder, scores: Value, mask: Value) -> Value:
    return build.map_(net, select(derivative.arg(1), derivative.arg(0), -np.inf), [scores, mask])


def finish(net: NetworkBuilder, scores: Value, value: Value, kind: str = "safe_softmax") -> Network:
    shares = net.emit_like(kind, [scores], scores)
    result = build.matmul(net, shares, value)
    net.output(result)
    weight = net.input(result.shape, f32, "weight")
    product = build.map_(net, derivative.arg(0) * derivative.arg(1), [result, weight])
    net.loss = build.reduce(net, product, range(result.ndim))
    return net.finish()


def masked(mask: Array) -> Network:
    net = NetworkBuilder()
    query, key, value = operands(net)
    return finish(net, hide(net, scores_of(net, query, key), net.constant(mask, bool_)), value)


def in_parts(net: Network) -> Network:
    made = Pipeline(in_blocks(Fewest())).run(net)
    verify(made)
    return made


def computed(net: Network) -> int:
    return sum(op.output.size for op in net.walk() if op.kind in ("softmax", "safe_softmax"))


def values(net: Network) -> dict[Value, Array]:
    rng = np.random.default_rng(0)
    return {v: rng.normal(size=v.shape) for v in (*net.inputs, *net.parameters)}


def check_same(whole: Network, parts: Network) -> None:
    """Results and gradients by everything."""
    found = []
    for net in (whole, parts):
        trained = differentiate(net, net.parameters)
        made = evaluate(trained, values(trained))
        found.append([made[trained.outputs[0]], *(made[g] for _, g in sorted_gradients(trained))])
    assert len(found[0]) == 1 + len(whole.parameters)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def sorted_gradients(net: Network) -> list[tuple[str, Value]]:
    return sorted(((p.name, g) for p, g in net.gradients.items()), key=lambda pair: pair[0])


@pytest.mark.parametrize("name", MASKS)
def test_skip_hidden__known_mask__gives_the_same_of_fewer_scores(name: str) -> None:
    whole = masked(MASKS[name])
    parts = in_parts(whole)
    assert computed(parts) < computed(whole)
    check_same(whole, parts)


def test_skip_hidden__minus_infinity_added_after_a_scale__is_seen() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net)
    added = net.constant(np.where(MASKS["causal"], 0.0, -np.inf), f32)
    scaled = derivative.arg(0) * Const(0.5) + derivative.arg(1)
    scores = build.map_(net, scaled, [scores_of(net, query, key), added])
    whole = finish(net, scores, value, "softmax")
    parts = in_parts(whole)
    assert computed(parts) < computed(whole)
    check_same(whole, parts)


def test_skip_hidden__mask_that_is_computed_of_constants_and_a_bias__is_seen() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net)
    rows, keys = net.constant(PLACE[:, None], i32), net.constant(PLACE, i32)
    mask = net.emit("map", [rows, keys], (ROWS, ROWS), bool_, expr=derivative.arg(0) >= derivative.arg(1))
    slopes = net.parameter((2, 1, 1), f32, "slopes")
    biased = derivative.arg(0) + derivative.arg(1)
    whole = finish(net, hide(net, build.map_(net, biased, [scores_of(net, query, key), slopes]), mask), value)
    parts = in_parts(whole)
    assert computed(parts) < computed(whole)
    check_same(whole, parts)


def test_skip_hidden__heads_that_share_keys__gives_the_same() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net, heads=4)
    rows = build.reshape(net, query, (2, 2, 2 * ROWS, WIDTH))
    scores = build.reshape(net, scores_of(net, rows, key), (2, 4, ROWS, ROWS))
    scores = hide(net, scores, net.constant(MASKS["causal"], bool_))
    shares = build.reshape(net, build.safe_softmax(net, scores, -1), (2, 2, 2 * ROWS, ROWS))
    result = build.matmul(net, shares, value)
    net.output(result)
    net.loss = build.reduce(net, result, range(4))
    whole = net.finish()
    parts = in_parts(whole)
    assert computed(parts) < computed(whole)
    check_same(whole, parts)


def left_alone(net: Network) -> bool:
    return SkipHidden(Fewest()).run(net) is net


def test_skip_hidden__mask_that_is_made_while_it_runs__leaves_the_network() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net)
    mask = net.input((ROWS, ROWS), bool_, "mask")
    assert left_alone(finish(net, hide(net, scores_of(net, query, key), mask), value))


def test_skip_hidden__finite_number_that_is_added__leaves_the_network() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net)
    added = net.constant(np.where(MASKS["causal"], 0.0, -1e4), f32)
    scores = build.map_(net, derivative.arg(0) + derivative.arg(1), [scores_of(net, query, key), added])
    assert left_alone(finish(net, scores, value))


def test_skip_hidden__shares_that_are_an_output__leaves_the_network() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net)
    scores = hide(net, scores_of(net, query, key), net.constant(MASKS["causal"], bool_))
    shares = build.safe_softmax(net, scores, -1)
    net.output(shares)
    net.output(build.matmul(net, shares, value))
    assert left_alone(net.finish())


def test_skip_hidden__dropout_of_shares__leaves_the_network() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net)
    scores = hide(net, scores_of(net, query, key), net.constant(MASKS["causal"], bool_))
    net.output(build.matmul(net, build.dropout(net, build.safe_softmax(net, scores, -1), 0.1), value))
    assert left_alone(net.finish())


def test_skip_hidden__no_chooser__leaves_the_network() -> None:
    net = masked(MASKS["causal"])
    assert SkipHidden().run(net) is net
    assert in_blocks(None) == ()


def test_skip_hidden__minus_infinity_by_a_score__is_not_taken_for_a_mask() -> None:
    net = NetworkBuilder()
    query, key, value = operands(net)
    scores = scores_of(net, query, key)
    large = select(derivative.arg(0) > 0.0, derivative.arg(0), -np.inf)
    assert left_alone(finish(net, build.map_(net, large, [scores]), value))
