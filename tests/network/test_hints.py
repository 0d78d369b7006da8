"""Hints of single ops to their planners, and convolutions that are grouped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.errors import NetworkError
from abele.machine import systems
from abele.network import parse
from abele.network.autodiff import differentiate
from abele.network.ir import ConvGroup, Network, NetworkBuilder, PlanHint, Value, verify
from abele.network.ops import build
from abele.network.passes import GroupConvolutions, Outline
from abele.session import Session, Settings, compile_network

GROUP = PlanHint(group=ConvGroup(number=1))


def branches(hints: list[PlanHint | None], *, chained: bool = False) -> Network:
    """Convolutions of one input, with hints; a loss of all."""
    net = NetworkBuilder()
    x = net.input((2, 4, 6, 6), "f32", "x")
    sums: list[Value] = []
    for number, hint in enumerate(hints):
        shape = (8, 4, 3, 3) if number % 2 == 0 else (4, 6, 2, 2)
        weight = net.parameter(shape, "f32", f"w{number}")
        make: Any = build.convolution if number % 2 == 0 else build.transposed_convolution
        more = {} if number % 2 == 0 else {"output_padding": (0, 0)}
        bias = net.parameter((shape[0] if number % 2 == 0 else 6,), "f32", f"b{number}")
        with net.at(hint=hint):
            made = make(net, x, weight, bias, stride=(1, 1), padding=(1, 1), dilation=(1, 1), **more)
        made = build.nonlinearity(net, "tanh", made)
        sums.append(build.mean(net, made, range(4)))
        if chained:
            x = build.slice_(net, made, 1, 0, 4)
        net.output(made)
    net.loss = build.total(net, sums)
    return net.finish()


def test_hint__around_a_checkpoint__holds_for_what_is_in_it() -> None:
    net, hint = NetworkBuilder(), PlanHint(proportion=0.1)
    x = net.input((2, 4, 6, 6), "f32", "x")
    weight = net.parameter((8, 4, 3, 3), "f32", "w")

    def stretch(body: Any) -> list[Value]:
        geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
        return [build.convolution(body, body.read(x), weight, **geometry)]

    with net.at(hint=hint):
        (made,) = build.checkpoint(net, stretch)
    net.loss = build.mean(net, made, range(4))
    net.output(net.loss)
    planned = [op for op in differentiate(net.finish(), net.parameters).walk() if op.kind.startswith("conv")]
    assert {op.kind for op in planned} == {"convolution", "convolution_grad_weight"}
    assert all(op.hint == hint for op in planned)


def kinds(net: Network) -> list[str]:
    return [op.kind for op in net.ops if op.kind.startswith("conv")]


def run(net: Network, **settings: Any) -> tuple[list[Any], int]:
    rng = np.random.default_rng(1)
    weights = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in net.parameters}
    x = rng.standard_normal(net.inputs[0].shape).astype(np.float32)
    given = Settings(system=systems.get("bow-2000").evolve(ipu={"num_tiles": 64}), **settings)
    with Session.of(net, settings=given, weights=weights) as session:
        return list(session.run([x]).outputs), session.report.total_cycles


def with_gradients(net: Network) -> Network:
    """``net`` that returns the gradients of its loss as well."""
    made = differentiate(net, net.parameters)
    return replace(made, outputs=(*made.outputs, *made.gradients.values()), gradients=type(made.gradients)())


@pytest.mark.parametrize("plan_type", ["parallel", "serial"])
def test_group__of_convolutions__computes_what_they_do_with_their_gradients(plan_type: str) -> None:
    hint = PlanHint(group=ConvGroup(3, plan_type, 2, 0.5))
    single = with_gradients(branches([None] * 3))
    net = GroupConvolutions().run(branches([hint] * 3))
    verify(net)
    assert kinds(net) == ["convolution_group"]
    grouped = with_gradients(net)
    verify(grouped)
    assert parse(str(grouped)) == grouped
    assert kinds(grouped) == ["convolution_group"] * 2, "the input has no gradient"
    expected, got = run(single)[0], run(grouped)[0]
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_group__of_small_convolutions__takes_fewer_cycles_at_once_than_one_after_the_other() -> None:
    cycles = {
        plan: run(GroupConvolutions().run(branches([PlanHint(group=ConvGroup(1, plan, 2))] * 3)))[1]
        for plan in ("parallel", "serial")
    }
    assert cycles["parallel"] < cycles["serial"]


def test_group__whose_members_depend_on_each_other__is_refused() -> None:
    with pytest.raises(NetworkError, match="convolutions of a group depend on each other") as caught:
        GroupConvolutions().run(branches([GROUP, GROUP], chained=True))
    assert "reads what one of them makes" in str(caught.value)


def test_groups__that_need_each_other_crosswise__are_refused() -> None:
    net = NetworkBuilder()
    x, weight = net.input((1, 4, 4, 4), "f32", "x"), net.parameter((4, 4, 1, 1), "f32", "w")

    def convolve(of: Value, number: int) -> Value:
        with net.at(hint=PlanHint(group=ConvGroup(number))):
            return build.convolution(net, of, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1))

    first, second = convolve(x, 1), convolve(build.reverse(net, x, [1]), 2)
    net.output(convolve(build.nonlinearity(net, "relu", first), 2))
    net.output(convolve(build.nonlinearity(net, "relu", second), 1))
    with pytest.raises(NetworkError, match="another one needs its result"):
        GroupConvolutions().run(net.finish())


def test_group__of_one__is_that_convolution() -> None:
    net = GroupConvolutions().run(branches([GROUP, None]))
    assert kinds(net) == ["convolution", "convolution_grad_data"]
    assert all(op.hint is None or op.hint.group is None for op in net.ops)


def test_groups__of_equal_layers__are_outlined() -> None:
    net = NetworkBuilder()
    x = net.input((1, 4, 8, 8), "f32", "x")
    for layer in range(4):
        parts = []
        for side in range(2):
            weight = net.parameter((4, 4, 3, 3), "f32", f"{layer}.{side}")
            with net.at(hint=PlanHint(group=ConvGroup(layer + 1))):
                made = build.convolution(net, x, weight, stride=(1, 1), padding=(1, 1), dilation=(1, 1))
            parts.append(build.nonlinearity(net, "tanh", made))
        x = build.total(net, parts)
    net.output(x)
    made = Outline().run(GroupConvolutions().run(net.finish()))
    assert "call" in [op.kind for op in made.ops]
    assert kinds(made) == []


def test_dithering__of_all_convolutions__moves_them_to_other_tiles_with_the_same_results() -> None:
    net = with_gradients(branches([None] * 3))
    plain, _ = run(net)
    moved, _ = run(net, convolution_dithering=True)
    for one, other in zip(plain, moved, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("how", ["setting", "hint"])
def test_dithering__of_small_convolutions__spreads_what_they_compute(how: str) -> None:
    def busiest(dithers: bool) -> int:
        net = NetworkBuilder()
        for number in range(6):
            x = net.input((1, 4 + 4 * number, 2, 2), "f32", f"x{number}")
            weight = net.parameter((4, x.shape[1], 1, 1), "f32", f"w{number}")
            with net.at(hint=PlanHint(dithered=True) if dithers and how == "hint" else None):
                net.output(build.convolution(net, x, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1)))
        settings = Settings(convolution_dithering=dithers and how == "setting")
        report = compile_network(net.finish(), settings=settings).executable.report
        return int(report.memory.by_tile.max())

    assert busiest(True) < busiest(False)


def products(proportion: float | None, *, after: bool = False) -> Network:
    net = NetworkBuilder()
    x, weight = net.input((256, 512), "f32", "x"), net.parameter((512, 512), "f32", "w")
    with net.at(hint=None if after or proportion is None else PlanHint(proportion)):
        made = build.linear(net, x, weight)
    if after:
        assert proportion is not None
        assert build.plan_with(net, build.reshape(net, made, (2, 128, 512)), proportion)
    net.output(made)
    net.loss = build.mean(net, build.nonlinearity(net, "tanh", made), range(2))
    return net.finish()


@pytest.mark.parametrize("after", [False, True])
def test_hint__share_of_memory__plans_the_op_as_the_setting_for_all_does(after: bool) -> None:
    default, default_cycles = run(products(None))
    hinted, hinted_cycles = run(products(0.05, after=after))
    of_all, of_all_cycles = run(products(None), memory_proportion=0.05)
    assert hinted_cycles == of_all_cycles > default_cycles
    np.testing.assert_array_equal(hinted[0], of_all[0])
    np.testing.assert_allclose(hinted[0], default[0], rtol=1e-4, atol=1e-4)


def test_hint__of_an_op__is_that_of_its_gradients() -> None:
    given = products(0.1)
    net = differentiate(given, given.parameters)
    assert [op.hint for op in net.ops if op.kind in ("linear", "matmul")] == [PlanHint(0.1)] * 2
    assert parse(str(net)) == net


def test_hint__on_a_kind_that_is_not_planned__is_illegal() -> None:
    text = (
        "network {\n  input %x: f32[2]\n  %0: f32[2] = nonlinearity(%x) function=tanh hint=PlanHint(proportion=0.1)\n}"
    )
    with pytest.raises(NetworkError, match="it has no attribute 'hint'"):
        verify(parse(text))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("counts=[3, 2]", "its members take 5 operands"),
        ("counts=[3, 1]", "does not take 1 operands"),
        ('kinds=["convolution", "map"]', "is no kind of convolution"),
        ("hints=[PlanHint(), 3]", "3 is no hint"),
        ("params=[1, 2]", "1 are no parameters"),
    ],
)
def test_group__hostile_text__is_refused(change: str, problem: str) -> None:
    text = str(GroupConvolutions().run(branches([GROUP, GROUP])))
    (line,) = (line for line in text.splitlines() if "convolution_group" in line)
    name = change.split("=")[0]
    begin = line.index(f"{name}=[")
    depth, end = 0, begin + len(name) + 1
    while True:
        depth += {"[": 1, "]": -1}.get(line[end], 0)
        end += 1
        if not depth:
            break
    hostile = text.replace(line, line[:begin] + change + line[end:])
    assert hostile != text
    with pytest.raises(NetworkError, match=problem):
        verify(parse(hostile))
