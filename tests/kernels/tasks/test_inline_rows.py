"""Values that tasks of a group of rows work out where they read them: which, and that no bit changes."""

from __future__ import annotations

import numpy as np
import pytest
from kernels_kit import form_after, run_plan
from small_programs import Calls

from abele.kernels import plan_native
from abele.kernels.nest.ir import ExprLike, apply, load
from abele.kernels.target import HostTarget
from abele.kernels.tasks.leaves import LeafProgram
from abele.numerics import ElementType, f16, f32

CPU = HostTarget(lanes=16, registers=32)
AT = ("r", "c")
ROWS = {"r": 128, "c": 256}
SHAPE = (128, 256)


def made_then_read(value: ExprLike, type_: ElementType = f32, *, readers: int = 2) -> Calls:
    """``value`` of x, as an array that so many sums of rows read; then x less one of the sums."""
    made = Calls()
    x, y = made.buffer(SHAPE, "x", True, type_), made.buffer(SHAPE, "y", True, type_)
    middle = made.buffer(SHAPE, "middle", type_=type_)
    made.call("make", [x], middle, ROWS, AT, value)
    for number in range(readers):
        sums = made.buffer((128,), f"sums{number}", number > 0)
        made.call(f"sum{number}", [middle], sums, ROWS, ("r",), load(0, *AT), ("add", "max")[number % 2])
    first = next(b for b in made.buffers if b.name == "sums0")
    made.call("less", [x, first], y, ROWS, AT, load(0, *AT) - load(1, "r") * (1.0 / 256))
    return made


def passed_on(made: Calls) -> set[str]:
    """The names of the arrays of a group's rows that one task writes and another reads."""
    program = form_after("inline_rows", made.buffers, made.calls, CPU)
    assert isinstance(program, LeafProgram)
    assert any(leaf.loop is not None for leaf in program.leaves)
    written = {s for leaf in program.leaves for task in leaf.tasks for s in task.writes}
    return {program.spaces[s].name for s in written if not program.spaces[s].pinned}


def outputs(made: Calls) -> dict[str, np.ndarray]:
    storage = {b.id: np.zeros(b.shape, b.type.np) for b in made.buffers if b.pinned}
    storage[0][...] = (np.random.default_rng(0).normal(size=SHAPE) * 3).astype(made.buffers[0].type.np)
    run_plan(plan_native(made.buffers, made.calls), storage)
    return {b.name: storage[b.id] for b in made.buffers if b.pinned}


CHEAP = load(0, *AT) * 1.1 + 0.7
COSTLY = apply("exp", load(0, *AT))


@pytest.mark.parametrize(("value", "readers", "stays"), [
    (load(0, *AT), 2, False),
    (CHEAP, 2, False),
    (CHEAP, 3, False),
    (COSTLY, 1, False),
    (COSTLY, 2, True),
])  # fmt: skip
def test_value__of_a_group__is_passed_on_only_where_it_costs_much(value: ExprLike, readers: int, stays: bool) -> None:
    assert ("middle" in passed_on(made_then_read(value, readers=readers))) == stays


def test_value__whose_source_is_written_before_it_is_read__is_passed_on() -> None:
    made = Calls()
    x, middle = made.buffer(SHAPE, "x", True), made.buffer(SHAPE, "middle")
    top, sums = made.buffer((128,), "top"), made.buffer((128,), "sums", True)
    made.call("make", [x], middle, ROWS, AT, CHEAP)
    made.call("top", [middle], top, ROWS, ("r",), load(0, *AT), "max")
    made.call("onto", [x, top], x, ROWS, AT, load(0, *AT) - load(1, "r"))
    made.call("sums", [middle], sums, ROWS, ("r",), load(0, *AT), "add")
    assert "middle" in passed_on(made)
    start = (np.random.default_rng(0).normal(size=SHAPE) * 3).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(outputs(made)["sums"], (start * 1.1 + 0.7).sum(1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("type_", [f32, f16])
def test_value__worked_out_by_its_readers__is_rounded_as_if_stored(type_: ElementType) -> None:
    got = outputs(made_then_read(CHEAP, type_))
    x = (np.random.default_rng(0).normal(size=SHAPE) * 3).astype(type_.np).astype(np.float32)
    middle = (x * np.float32(1.1) + np.float32(0.7)).astype(type_.np).astype(np.float32)
    np.testing.assert_allclose(got["sums1"], middle.max(1), rtol=1e-6)
    less = x - middle.astype(np.float64).sum(1, keepdims=True) / 256
    np.testing.assert_allclose(got["y"].astype(np.float64), less, atol=1e-5 if type_ == f32 else 1e-2)
