"""Products with sparse matrices in networks: meaning, text, errors, derivatives, and what the machine computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError, NetworkError, PatternMismatchError, SparseOverflowError, SparsePatternError
from abele.expr.derivative import arg
from abele.network import Group, Network, NetworkBuilder, Schedule, Sgd, Value, differentiate, evaluate, parse, verify
from abele.network.ops import build, sparse_calls
from abele.network.ops.sparse_slots import SlotPlan
from abele.session import Session, Settings
from abele.sparsity import Pattern, random_pattern

SHAPE, ROWS = (48, 32), 8


def pattern_of(block: int) -> Pattern:
    """A random pattern whose second block row is empty."""
    drawn = random_pattern(SHAPE, 0.3, (block, block), seed=3).mask.copy()
    drawn[1] = False
    return Pattern.from_dense_mask(drawn, (block, block))


def layers(block: int, dtype: str = "f32") -> tuple[Network, SlotPlan, Pattern]:
    """A static and a dynamic layer on one input, and the sum of squares of both."""
    pattern = pattern_of(block)
    plan = SlotPlan(SHAPE, (block, block), min(pattern.num_blocks + 3, 6 * 256 // block**2), ROWS, dtype)
    net = NetworkBuilder()
    x = net.input((ROWS, SHAPE[1]), dtype, "x")
    values = net.parameter((pattern.num_blocks, block, block), dtype, "values")
    slots = net.parameter(plan.values_shape, dtype, "slots")
    words = net.buffer(plan.meta_shape, "u16", "words")
    results = [build.sparse_linear(net, x, values, pattern), build.dynamic_sparse_linear(net, x, words, slots, plan)]
    for result in results:
        net.output(result)
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(0) + arg(1) * arg(1), results), [0, 1])
    return net.finish(), plan, pattern


def named(net: Network) -> dict[str, Value]:
    return {v.name: v for v in (*net.inputs, *net.parameters, *net.buffers)}


def feeds(net: Network, plan: SlotPlan, pattern: Pattern, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(pattern.num_blocks, *pattern.block)) * scale
    return {
        "x": rng.normal(size=(ROWS, SHAPE[1])),
        "values": values,
        "slots": plan.encode(pattern, values),
        "words": plan.words(pattern),
    }


@pytest.mark.parametrize("block", [1, 4, 8, 16])
def test_text__of_sparse_products__reads_back(block: int) -> None:
    net, _, _ = layers(block)
    verify(net)
    assert parse(str(net)) == net


@pytest.mark.parametrize("block", [1, 4, 8, 16])
def test_gradients__of_sparse_layers__are_the_dense_ones_at_the_pattern(block: int) -> None:
    net, plan, pattern = layers(block)
    given, value = feeds(net, plan, pattern), named(net)
    differentiated = differentiate(net, net.parameters)
    found = evaluate(differentiated, {value[n]: a for n, a in given.items()})
    dense = pattern.to_dense(given["values"])
    result = given["x"] @ dense.T
    for output in differentiated.outputs:
        np.testing.assert_allclose(found[output], result, rtol=1e-12)
    by_weight = pattern.values_of((2 * result).T @ given["x"])
    gradients = {v.name: found[g] for v, g in differentiated.gradients.items()}
    np.testing.assert_allclose(gradients["values"], by_weight, rtol=1e-12)
    np.testing.assert_allclose(gradients["slots"], plan.encode(pattern, by_weight), rtol=1e-12)


@pytest.mark.parametrize("mode", ["native", "tiles"])
@pytest.mark.parametrize(("block", "dtype"), [(1, "f32"), (4, "f16"), (8, "f32"), (16, "f16")])
def test_step__on_the_machine__is_the_meaning(block: int, dtype: str, mode: str) -> None:
    net, plan, pattern = layers(block, dtype)
    given = feeds(net, plan, pattern, scale=0.25)
    kind = np.float16 if dtype == "f16" else np.float32
    weights = {n: given[n] if n == "words" else given[n].astype(kind) for n in ("values", "slots", "words")}
    session = Session.of(
        net,
        Schedule(),
        groups=[Group(Sgd(lr=0.125), net.parameters)],
        weights=dict(weights),
        settings=Settings(system="bow-2000", mode=mode),
    )
    x = given["x"].astype(kind)
    results = session(x)
    dense = pattern.to_dense(weights["values"].astype(np.float64))
    result = x.astype(np.float64) @ dense.T
    bound = 5e-3 if dtype == "f16" else 1e-5
    for made in results:
        np.testing.assert_allclose(made, result, rtol=bound, atol=bound)
    step = pattern.values_of((2 * result).T @ x.astype(np.float64)) / 8
    np.testing.assert_allclose(session.weights["values"], weights["values"] - step, rtol=10 * bound, atol=10 * bound)
    slots = plan.encode(pattern, weights["values"] - step)
    np.testing.assert_allclose(session.weights["slots"], slots, rtol=10 * bound, atol=10 * bound)
    unused = np.setdiff1d(np.arange(slots.size), plan.slots(pattern))
    assert not session.weights["slots"][unused].any()


def test_dynamic_layer__told_another_pattern__computes_with_it() -> None:
    net, plan, pattern = layers(4)
    given = feeds(net, plan, pattern)
    weights = {n: given[n] if n == "words" else given[n].astype(np.float32) for n in ("values", "slots", "words")}
    session = Session.of(net, weights=weights, settings=Settings(system="bow-2000"))
    other = random_pattern(SHAPE, pattern.density, (4, 4), seed=8)
    values = np.random.default_rng(1).normal(size=(other.num_blocks, 4, 4)).astype(np.float32)
    session(given["x"].astype(np.float32))
    session.weights["slots"], session.weights["words"] = plan.encode(other, values), plan.words(other)
    _, made = session(given["x"].astype(np.float32))
    np.testing.assert_allclose(made, given["x"] @ other.to_dense(values).T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [1, 4, 13])
def test_dynamic_layer__rows_off_the_plan__are_cut_and_filled_up(count: int) -> None:
    pattern, net = pattern_of(4), NetworkBuilder()
    plan = SlotPlan(SHAPE, (4, 4), pattern.num_blocks, ROWS)
    x = net.input((count, SHAPE[1]), "f32", "x")
    slots, words = net.parameter(plan.values_shape, "f32", "slots"), net.buffer(plan.meta_shape, "u16", "words")
    net.output(build.dynamic_sparse_linear(net, x, words, slots, plan))
    built, rng = net.finish(), np.random.default_rng(0)
    values, rows = rng.normal(size=(pattern.num_blocks, 4, 4)), rng.normal(size=(count, SHAPE[1]))
    found = evaluate(built, {x: rows, slots: plan.encode(pattern, values), words: plan.words(pattern)})
    np.testing.assert_allclose(found[built.outputs[0]], rows @ pattern.to_dense(values).T, rtol=1e-12)


def test_op__operands_that_do_not_fit__names_them() -> None:
    pattern = pattern_of(4)
    for shape, rows, match in (
        ((3, 4, 4), 32, "as the values of Pattern"),
        ((pattern.num_blocks, 4, 4), 31, "32 rows"),
    ):
        net = NetworkBuilder()
        values, dense = net.input(shape, "f32", "values"), net.input((rows, 2), "f32", "dense")
        net.output(build.sparse_matmul(net, values, dense, pattern))
        with pytest.raises(NetworkError, match=match):
            verify(net.finish())


@pytest.mark.parametrize(
    "pattern", ['[48, 33], [16, 16], "02"', '[48, 32], [16, 16], "ff02"', '[48, 3.5], [16, 16], "02"']
)
def test_text__patterns_that_are_none__are_refused(pattern: str) -> None:
    text = str(layers(16)[0])
    begin = text.index("pattern(") + len("pattern(")
    with pytest.raises((NetworkError, SparsePatternError)):
        parse(text[:begin] + pattern + text[text.index(")", begin) :])


def test_plan__sizes_beyond_it__are_refused() -> None:
    plan = SlotPlan(SHAPE, (4, 4), 10, ROWS)
    with pytest.raises(SparseOverflowError, match="slots for 10"):
        plan.words(random_pattern(SHAPE, 0.5, (4, 4)))
    with pytest.raises(PatternMismatchError, match="in blocks of"):
        plan.words(random_pattern(SHAPE, 0.01))
    with pytest.raises(InvalidOptionError, match="at least 1 row"):
        SlotPlan(SHAPE, (4, 4), 10, 0)
    with pytest.raises(InvalidOptionError, match="1 to 96 blocks"):
        SlotPlan(SHAPE, (4, 4), 97, 1)
    with pytest.raises(InvalidOptionError, match="f32 or f16"):
        SlotPlan(SHAPE, (4, 4), 10, ROWS, "i32")
    with pytest.raises(SparsePatternError, match="no multiple of 4"):
        _ = SlotPlan(SHAPE, (4, 4), 10, 3).values_shape
    with pytest.raises(SparsePatternError, match="are u16"):
        plan.pattern(np.zeros(3, np.uint16))


def test_plan__words_that_are_written_to__are_the_callers_own() -> None:
    plan, pattern = SlotPlan(SHAPE, (4, 4), 30, ROWS), pattern_of(4)
    words = plan.words(pattern)
    words[:] = 7
    assert plan.pattern(plan.words(pattern)) == pattern


def test_plan__values_to_slots_and_back__are_the_same() -> None:
    pattern = pattern_of(4)
    plan = SlotPlan(SHAPE, (4, 4), pattern.num_blocks + 5, ROWS)
    values = np.random.default_rng(0).normal(size=(pattern.num_blocks, 4, 4))
    assert plan.pattern(plan.words(pattern)) == pattern
    np.testing.assert_array_equal(plan.decode(pattern, plan.encode(pattern, values)), values)


@pytest.mark.parametrize(("block", "columns"), [(1, 6), (4, 8), (16, 3)])
def test_sampled_product__too_large_to_be_taken_from_a_dense_one__is_made_at_its_places(
    block: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_calls, "LARGEST_DENSE", 0)
    pattern, net, rng = pattern_of(block), NetworkBuilder(), np.random.default_rng(0)
    a, b = (net.input((rows, columns), "f32", name) for rows, name in zip(SHAPE, "ab", strict=True))
    net.output(build.sampled_matmul(net, a, b, pattern))
    session = Session.of(net.finish(), settings=Settings(system="bow-2000", mode="tiles"))
    left, right = (rng.normal(size=(rows, columns)).astype(np.float32) for rows in SHAPE)
    np.testing.assert_allclose(session(left, right)[0], pattern.values_of(left @ right.T), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_products__of_oblong_blocks__are_cut_for_their_vertices(mode: str) -> None:
    pattern, net, rng = random_pattern(SHAPE, 0.3, (8, 4)), NetworkBuilder(), np.random.default_rng(0)
    values, x = net.input((pattern.num_blocks, 8, 4), "f32", "values"), net.input((3, 32), "f32", "x")
    y = net.input((3, 48), "f32", "y")
    net.output(build.sparse_linear(net, x, values, pattern))
    net.output(build.sparse_linear(net, y, values, pattern, transposed=True))
    session = Session.of(net.finish(), settings=Settings(system="bow-2000", mode=mode))
    held, *rows = (rng.normal(size=v).astype(np.float32) for v in ((pattern.num_blocks, 8, 4), (3, 32), (3, 48)))
    made, back = session(held, *rows)
    np.testing.assert_allclose(made, rows[0] @ pattern.to_dense(held).T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back, rows[1] @ pattern.to_dense(held), rtol=1e-4, atol=1e-5)


def test_layer__compiled_for_another_machine__is_refused() -> None:
    net, plan, pattern = layers(4)
    with pytest.raises(PatternMismatchError, match="planned for bow-2000, and is compiled for"):
        Session.of(net, settings=Settings(system="c2")).run(feeds(net, plan, pattern))
