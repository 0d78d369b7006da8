"""Views between products: every call runs as a kernel, and products stay vector code over what is not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from abele.distribution import NetworkProgram, training_program
from abele.expr.derivative import arg
from abele.graph import Graph, LibraryCall, Program, Steps, Variable
from abele.kernels.nest.binding import bound_calls
from abele.kernels.plan.functions import TaskFunction
from abele.kernels.plan.passes import run_passes
from abele.kernels.target import HostTarget
from abele.kernels.tasks.copy_operands import is_product
from abele.network import Group, NetworkBuilder, Schedule, Sgd, Value
from abele.network.ops import build
from abele.numerics import f32, i32
from abele.runtime.native.fusion import flattened, is_fusible, split_runs
from abele.runtime.native.plan_runs import Binder

BATCH, TOKENS, WIDTH = 6, 20, 32
SMALL_PRODUCT = 1 << 14
"""Points of a product from which scalar code would be felt."""

View = Callable[[NetworkBuilder, Value], Value]


def tanh(net: NetworkBuilder, x: Value) -> Value:
    return build.nonlinearity(net, "tanh", x)


def heads(net: NetworkBuilder, x: Value) -> Value:
    """Attention of four heads on the value itself."""
    split = build.permute(net, build.reshape(net, x, (BATCH, -1, 4, WIDTH // 4)), (0, 2, 1, 3))
    mixed = build.matmul(net, build.softmax(net, build.matmul(net, split, build.transpose(net, split)), -1), split)
    return build.reshape(net, build.permute(net, mixed, (0, 2, 1, 3)), x.shape)


def rows(net: NetworkBuilder, x: Value, numbers: list[int]) -> Value:
    table = build.reshape(net, build.permute(net, x, (1, 0, 2)), (x.shape[1], -1))
    taken = build.look_up(net, table, net.constant(numbers, i32))
    return build.permute(net, build.reshape(net, taken, (len(numbers), BATCH, WIDTH)), (1, 0, 2))


VIEWS: dict[str, View] = {
    "first token": lambda net, x: build.slice_(net, x, 1, 0, 1),
    "last token beside the mean": lambda net, x: build.concat(
        net, [build.slice_(net, x, 1, TOKENS - 1, TOKENS), build.mean(net, x, [1], keep=True)], 2
    ),
    "first token and all": lambda net, x: build.map_(net, arg(0) + arg(1), [x, build.slice_(net, x, 1, 0, 1)]),
    "without first": lambda net, x: build.slice_(net, x, 1, 1, TOKENS),
    "every third": lambda net, x: build.slice_(net, tanh(net, x), 1, 0, TOKENS, 3),
    "odd part of width": lambda net, x: build.slice_(net, x, 2, 3, 24),
    "class token": lambda net, x: build.concat(
        net, [build.expand(net, net.parameter((1, 1, WIDTH), f32, "token"), (BATCH, 1, WIDTH)), x], 1
    ),
    "positions": lambda net, x: build.map_(net, arg(0) + arg(1), [x, net.parameter((TOKENS, WIDTH), f32, "places")]),
    "gates": lambda net, x: build.map_(
        net, arg(0) * arg(1), [build.slice_(net, x, 2, 0, 16), tanh(net, build.slice_(net, x, 2, 16, 32))]
    ),
    "skip": lambda net, x: build.concat(net, [x, tanh(net, x)], 2),
    "stack": lambda net, x: build.reshape(
        net,
        build.concat(net, [build.reshape(net, v, (BATCH, TOKENS, 1, WIDTH)) for v in (x, tanh(net, x))], 2),
        (BATCH, 2 * TOKENS, WIDTH),
    ),
    "pad": lambda net, x: build.pad(net, x, [0, 1, 0], [0, 2, 0]),
    "shift": lambda net, x: build.map_(
        net, arg(0) + arg(1), [x, build.slice_(net, build.pad(net, x, [0, 1, 0], [0, 0, 0]), 1, 0, TOKENS)]
    ),
    "neighbours": lambda net, x: build.concat(net, [build.slice_(net, x, 1, n, TOKENS - 2 + n) for n in range(3)], 2),
    "flip": lambda net, x: build.map_(net, arg(0) + arg(1), [x, build.reverse(net, x, [1])]),
    "shuffled tokens": lambda net, x: rows(net, x, [(7 * n + 3) % TOKENS for n in range(12)]),
    "patches": lambda net, x: build.reshape(
        net, build.permute(net, build.reshape(net, x, (BATCH, TOKENS // 2, 2, 4, 8)), (0, 1, 3, 2, 4)), (BATCH, -1, 64)
    ),
    "heads": heads,
}


class _AllStored:
    """Storage of programs of which everything is to be read, in the order of its variable."""

    orders: Mapping[Variable, tuple[int, ...]] = {}

    def is_stored(self, variable: Variable) -> bool:
        return True


def trained(view: View) -> tuple[NetworkProgram, NetworkBuilder]:
    """A product, the view, and two products, trained."""
    net = NetworkBuilder()
    x = net.input((BATCH, TOKENS, WIDTH), f32, "x")
    seen = view(net, build.linear(net, x, net.parameter((WIDTH, WIDTH), f32, "a")))
    hidden = tanh(net, build.linear(net, seen, net.parameter((48, seen.shape[-1]), f32, "b")))
    y = build.linear(net, hidden, net.parameter((24, 48), f32, "c"), net.parameter((24,), f32, "bias"))
    net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [y]), range(y.ndim))
    made = training_program(net.finish(), Graph("bow"), Schedule(), [Group(Sgd(lr=0.1), tuple(net.parameters))])
    return made, net


def steps_of(program: Program) -> Iterator[Program]:
    """The steps that a host takes."""
    for step in flattened(Steps(program)):
        if isinstance(step, Steps) and step.host_body is not None:
            yield from steps_of(step.host_body)
            continue
        children = () if isinstance(step, LibraryCall) else tuple(step.children())
        if not children:
            yield step
        for child in children:
            yield from steps_of(child)


def functions_of(program: Program) -> Iterator[TaskFunction]:
    """The functions that host kernels of a program become."""
    for run in split_runs(list(steps_of(program))):
        if isinstance(run, tuple):
            binder = Binder(_AllStored(), run)  # type: ignore[arg-type]
            calls = [call for number, step in enumerate(run) for call in binder.calls(number, step)]
            form = run_passes(bound_calls(binder.buffers, calls, HostTarget(16)), after="choose_schedules", check=True)
            yield from (f for leaf in form.leaves for f in leaf.functions)


@pytest.mark.parametrize("name", VIEWS)
def test_training__view_between_products__runs_kernels_in_vector_lanes(name: str) -> None:
    made, _ = trained(VIEWS[name])
    calls = [s for s in steps_of(made.program) if isinstance(s, LibraryCall)]
    assert calls
    assert [c.debug.full_name for c in calls if not is_fusible(c)] == []
    products = [f for f in functions_of(made.program) if any(map(is_product, f.task.reductions))]
    large = [f for f in products if f.task.points >= SMALL_PRODUCT]
    # Four heads of eight leave products of few columns.
    least = 4 if name == "heads" else 8
    assert [f"{f.task.name}: {f.schedule}" for f in large if f.schedule is None or f.schedule.lanes < least] == []
    # Samples of the last block are guarded, elements of operands are not.
    guards = {f.task.name: {n for g in f.nest.guards() for n in g.position.names} for f in large}
    assert {name: dims for name, dims in guards.items() if not dims <= {"block", "lane"}} == {}


def test_training__first_of_all_tokens__multiplies_no_zeros() -> None:
    made, _ = trained(VIEWS["first token"])
    rows_, points = (
        BATCH,
        [f.task.points for f in functions_of(made.program) if any(map(is_product, f.task.reductions))],
    )
    widths = (WIDTH * WIDTH, 48 * WIDTH, 24 * 48)
    # Forward, by weights and by data, but for the gradient of the input.
    assert sum(points) == rows_ * (3 * sum(widths) - widths[0])
    assert np.all(np.array(points) <= rows_ * max(widths))
