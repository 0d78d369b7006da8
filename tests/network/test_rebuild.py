"""Activations that the backward pass makes again of what it keeps anyway."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.expr.derivative import arg
from abele.network import Network, NetworkBuilder, Value, differentiate, evaluate
from abele.network.ir import BlockBuilder, Stage
from abele.network.ops import build
from abele.network.passes import Outline

WIDTH = 4
Block = tuple[bool, bool, bool]
"""True if a block has a residual, a non-linearity, and is a checkpoint."""


def product_and_norm(net: BlockBuilder, x: Value, name: str, groups: int) -> Value:
    root = net.root
    width = x.shape[1]
    weight = root.parameter((width, width, 1, 1), x.dtype, f"{name}/weight")
    gain, shift = (root.parameter((width,), x.dtype, f"{name}/{what}") for what in ("gain", "shift"))
    x = build.convolution(net, x, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1))
    return build.norm(net, x, groups, 1e-5, gain, shift)[0]


def body(x: Value, number: int, kind: Block, groups: int, net: BlockBuilder) -> list[Value]:
    residual, active, _ = kind
    x = net.read(x)
    made = product_and_norm(net, x, f"{number}/1", groups)
    made = product_and_norm(net, build.nonlinearity(net, "relu", made), f"{number}/2", groups)
    made = build.map_(net, arg(0) + arg(1), [made, x]) if residual else made
    return [build.nonlinearity(net, "relu", made) if active else made]


def chain(blocks: Sequence[Block], groups: int = build.BATCH, dtype: str = "f32") -> Network:
    """Blocks of two products and norms, the last of which has a residual beside it."""
    net = NetworkBuilder()
    x = net.input((3, WIDTH, 2, 2), dtype, "x")
    for number, kind in enumerate(blocks):
        made = partial(body, x, number, kind, groups)
        (x,) = build.checkpoint(net, made) if kind[2] else made(net)
    target = net.input(x.shape, dtype, "target")
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [x, target]), range(4))
    return net.finish()


def kept(net: Network) -> set[Value]:
    """Large values that the backward pass reads of the forward pass."""
    forward = {v for op in net.ops if op.stage == Stage.FORWARD for v in op.outputs}
    read = {v for op in net.ops if op.stage == Stage.BACKWARD for v in op.inputs}
    return {v for v in forward & read if v.ndim == 4}


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=4),
    st.sampled_from([build.BATCH, 1, 2]),
)
def test_rebuild__any_chain_of_blocks__has_the_same_gradients_and_keeps_no_more(
    blocks: list[Block], groups: int
) -> None:
    net = chain(blocks, groups)
    once, again = differentiate(net, net.parameters), differentiate(net, net.parameters, rebuilt_above=0)
    random = np.random.default_rng(0)
    feeds = {v: random.normal(size=v.shape) for v in (*net.inputs, *net.parameters)}
    expected, got = evaluate(once, feeds), evaluate(again, feeds)
    for parameter in net.parameters:
        want = expected[once.gradients[parameter]]
        np.testing.assert_allclose(got[again.gradients[parameter]], want, rtol=1e-9, atol=1e-9)
    assert len(kept(again)) <= len(kept(once))


def test_rebuild__what_only_leaves_a_checkpoint__is_not_computed_again() -> None:
    net = chain([(True, True, True), (True, True, True), (False, True, False)])
    made = differentiate(net, net.parameters, rebuilt_above=0)
    function, *_ = (f for f in made.functions if f.name == "recomputed1")
    # Both passes run products, norms and the ReLU inside; the sum and the ReLU behind it are in the first alone.
    assert [op.kind for op in function.body.ops if op.kind in ("map", "nonlinearity")] == ["nonlinearity"]
    first, second = (op for op in made.ops if op.kind == "checkpoint" and op.stage == Stage.FORWARD)
    for stretch in (first, second):
        assert [op.kind for op in stretch.regions[0].ops] == ["call", "map", "nonlinearity"]
    # The gradient through the last ReLU comes before the stretch is computed again: it needs what was kept.
    *_, again = (op for op in made.ops if op.kind == "checkpoint" and op.stage == Stage.BACKWARD)
    kinds = [op.kind for op in again.regions[0].ops]
    assert kinds.index("nonlinearity_grad") < kinds.index("call")


def two_branches(width: int, *, together: bool = True, residual: bool = False) -> Network:
    """A checkpoint whose first block ends in a sum of two norms of wider products, with a product behind it.

    There may be a block with a residual between these.
    """
    net = NetworkBuilder()
    x = net.input((3, WIDTH, 2, 2), "f32", "x")
    weights = [net.parameter((width, WIDTH, 1, 1), "f32", f"{name}/weight") for name in ("long", "short")]
    sides = [net.parameter((width,), "f32", f"{n}") for n in ("long/gain", "long/shift", "short/gain", "short/shift")]
    last = net.parameter((width, width, 1, 1), "f32", "last/weight")

    def stretch(body: BlockBuilder) -> list[Value]:
        inside = body.read(x)
        ends = []
        for number, weight in enumerate(weights):
            made = build.convolution(body, inside, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1))
            ends.append(build.norm(body, made, build.BATCH, 1e-5, *sides[2 * number : 2 * number + 2])[0])
        end = build.nonlinearity(body, "relu", build.map_(body, arg(0) + arg(1), ends))
        if residual:
            made = product_and_norm(body, end, "between", build.BATCH)
            end = build.nonlinearity(body, "relu", build.map_(body, arg(0) + arg(1), [made, end]))
        end = build.convolution(body, end, last, stride=(1, 1), padding=(0, 0), dilation=(1, 1))
        return [build.nonlinearity(body, "tanh", end)]

    out = build.checkpoint(net, stretch)[0] if together else stretch(net)[0]
    target = net.input(out.shape, "f32", "target")
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [out, target]), range(4))
    return net.finish()


def products_of(net: Network) -> int:
    """Convolutions that make what a norm whitens again."""
    return sum(op.kind == "whiten" for op in net.walk())


@pytest.mark.parametrize(
    ("width", "together", "again"),
    [(4 * WIDTH, True, 1), (2 * WIDTH, True, 0), (4 * WIDTH, False, 0)],
    ids=["small operand", "no small operand", "one block for both passes"],
)
def test_rebuild__sum_of_two_norms__makes_one_of_them_again(width: int, together: bool, again: int) -> None:
    net = two_branches(width, together=together)
    once, made = differentiate(net, net.parameters), differentiate(net, net.parameters, rebuilt_above=0)
    assert products_of(made) == again
    assert products_of(once) == 0
    random = np.random.default_rng(0)
    feeds = {v: random.normal(size=v.shape) for v in (*net.inputs, *net.parameters)}
    expected, got = evaluate(once, feeds), evaluate(made, feeds)
    for parameter in net.parameters:
        want = expected[once.gradients[parameter]]
        np.testing.assert_allclose(got[made.gradients[parameter]], want, rtol=1e-9, atol=1e-9)


def test_rebuild__norm_that_is_made_again__waits_for_the_gradient_by_the_input_of_its_reader() -> None:
    net = two_branches(4 * WIDTH, residual=True)
    made = differentiate(net, net.parameters, rebuilt_above=0)
    (again,) = (op for op in made.ops if op.kind == "checkpoint" and op.stage == Stage.BACKWARD)
    kinds = [op.kind for op in again.regions[0].ops]
    by_input, whiten = kinds.index("convolution_grad_data"), kinds.index("whiten")
    assert kinds[whiten - 1] == "convolution"
    assert by_input < whiten < kinds.index("convolution_grad_weight")
    # The last end is made of three large values, one of which was made just before.
    assert by_input < kinds.index("map") > whiten


def test_rebuild__gradients_by_weights__come_behind_the_gradient_of_what_they_read() -> None:
    net = chain([(True, True, False)] * 2)
    made = differentiate(net, net.parameters, rebuilt_above=0)
    backward = [op for op in made.ops if op.stage == Stage.BACKWARD]
    outputs = [op.inputs[0] for op in backward if op.kind == "nonlinearity_grad"]
    by_weight = [op for op in backward if op.kind == "convolution_grad_weight"]
    assert len(by_weight) == 4
    for op in by_weight:
        for value in set(op.inputs).intersection(outputs):
            readers = [each for each in backward if value in each.inputs]
            assert readers[-1] is op
            assert readers[0].kind == "nonlinearity_grad"


def test_rebuild__chain_without_residuals__keeps_one_activation_of_each_product() -> None:
    net = chain([(False, True, False)] * 3)
    made = differentiate(net, net.parameters, rebuilt_above=0)
    assert len(kept(differentiate(net, net.parameters))) == 6 + 6
    # The whitened activations alone.
    assert len(kept(made)) == 6
    assert {op.kind for op in made.ops for v in op.outputs if v in kept(made)} == {"norm"}


def test_rebuild__ends_of_residual_blocks__are_made_again_of_the_one_before_which_is_kept() -> None:
    net = chain([(False, True, False), *([(True, True, False)] * 4)])
    made = differentiate(net, net.parameters, rebuilt_above=0)
    ends = [op.output for op in net.ops if op.kind == "nonlinearity"][1::2]
    # Of one value, of two, of three, of four (so it is kept), of two.
    assert [end in kept(made) for end in ends] == [False, False, False, True, False]


@pytest.mark.parametrize(("above", "is_rebuilt"), [(0, True), (3 * WIDTH * 4 * 4, False), (None, False)])
def test_rebuild__small_activations__are_not_worth_the_time(above: int | None, is_rebuilt: bool) -> None:
    # Activations have 3 · 4 · 2 · 2 elements.
    net = chain([(False, True, False)])
    made = differentiate(net, net.parameters, rebuilt_above=above)
    assert (len(kept(made)) < len(kept(differentiate(net, net.parameters)))) == is_rebuilt


def test_rebuild__probabilities_after_dropout__are_drawn_again_where_layers_are_functions() -> None:
    net = NetworkBuilder()
    x = net.input((2, 4, 4), "f32", "x")
    for number in range(3):
        weight = net.parameter((2, 4, 4), "f32", f"w{number}")
        chances = build.softmax(net, build.matmul(net, x, weight), 2)
        dropped = build.reshape(net, build.dropout(net, build.reshape(net, chances, (8, 4)), 0.5), (2, 4, 4))
        x = build.nonlinearity(net, "tanh", build.matmul(net, dropped, weight))
    net.loss = build.reduce(net, x, range(3))
    layers = Outline(min_ops=4).run(net.finish())
    once, again = (differentiate(layers, layers.parameters, rebuilt_above=above) for above in (None, 0))
    random = np.random.default_rng(0)
    assert layers.seed is not None
    feeds = {v: random.normal(size=v.shape) for v in (*layers.inputs, *layers.parameters)}
    feeds[layers.seed] = np.array([7, 3], np.uint32)
    expected, got = evaluate(once, feeds), evaluate(again, feeds)
    for parameter in layers.parameters:
        want, found = expected[once.gradients[parameter]], got[again.gradients[parameter]]
        np.testing.assert_allclose(found, want, rtol=1e-12)
    results = [next(op for op in made.ops if op.kind == "call").outputs for made in (once, again)]
    # What leaves the layer, its probabilities, and what dropout left of them.
    assert [len(r) for r in results] == [3, 2]
