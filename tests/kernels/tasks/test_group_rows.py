"""Tasks that agree on rows run together; what they meet at other rows keeps them apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels_kit import form_after, run_plan
from small_programs import Calls, token_norm

from abele.kernels import plan_native
from abele.kernels.illegal import IllegalFormError
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import affine, load
from abele.kernels.plan.passes import run_passes
from abele.kernels.plan.reference import evaluate_form
from abele.kernels.tasks.check import check_program
from abele.kernels.tasks.program import RowDims, TaskProgram, TaskStage

SHAPES = [(4, 64, 4096), (3, 53, 5000), (40, 9, 1500)]


def staged(made: Calls) -> TaskProgram:
    return form_after("group_rows", made.buffers, made.calls)


def stage_by_rows(program: TaskProgram) -> tuple[TaskStage, RowDims]:
    """The one stage of ``program``, which runs row by row."""
    (stage,) = program.stages
    assert stage.rows is not None
    return stage, stage.rows


def expected(x: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y and the gradient of the scale, in float64."""
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    y = x + unit * scale
    return y, (y * unit).sum((0, 1))


def storage_of(shape: tuple[int, int, int]) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(sum(shape))
    x, scale = rng.normal(1.0, 2.0, shape).astype(np.float32), rng.normal(size=shape[-1]).astype(np.float32)
    return {0: x, 1: scale, 2: np.zeros(shape, np.float32), 3: np.zeros(shape[-1], np.float32)}


def assert_right(y: np.ndarray, grad: np.ndarray, shape: tuple[int, int, int]) -> None:
    held = storage_of(shape)
    right_y, right_grad = expected(held[0], held[1])
    np.testing.assert_allclose(y, right_y, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(grad, right_grad, rtol=1e-4, atol=1e-4 * np.abs(right_grad).max())


def test_group_rows__norm_with_residual_and_gradient__is_one_stage_of_all_tasks():
    program = staged(token_norm())
    stage, rows = stage_by_rows(program)
    assert (rows.extents, len(stage.tasks)) == ((4, 64), len(program.tasks))
    sums = [program.tasks[n].name for n, names in zip(stage.tasks, rows.dims, strict=True)
            if names[0] in dict(program.tasks[n].reduced)]  # fmt: skip
    assert sums == ["grad"]
    assert {program.spaces[s].name for s in rows.local} >= {"mean", "centred", "power"}


@pytest.mark.parametrize("shape", SHAPES)
def test_group_rows__any_shape__float64_agrees_and_threads_change_no_bit(shape: tuple[int, int, int]):
    made, results = token_norm(*shape), []
    assert any(stage.rows is not None for stage in staged(made).stages)
    plan = plan_native(made.buffers, made.calls)
    for threads in (1, 3):
        storage = storage_of(shape)
        run_plan(plan, storage, threads)
        results.append((storage[2], storage[3]))
    assert_right(*results[0], shape)
    for one, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, three)


def test_group_rows__what_passes_between_tasks__is_a_few_rows_at_a_time():
    made = token_norm()
    plan = plan_native(made.buffers, made.calls)
    assert plan.scratch_bytes < 1 << 19  # a whole array takes four megabytes
    assert plan.arena_bytes < 1 << 19


@pytest.mark.parametrize("after", ["group_rows", "block_samples", "merge_dims"])
def test_group_rows__every_later_form__means_the_same(after: str):
    shape = (33, 2, 6144)
    made, held = token_norm(*shape), storage_of(shape)
    found = evaluate_form(run_passes(bound_calls(made.buffers, made.calls), after=after, check=True), held)
    assert_right(found[2].reshape(shape), found[3].reshape(-1), shape)


def test_group_rows__a_task_that_meets_other_rows__stays_outside():
    made, shape = Calls(), (4, 64, 4096)
    x, y, middle = made.buffer(shape, "x", True), made.buffer(shape, "y", True), made.buffer(shape, "middle")
    loops, at = {"b": 4, "t": 64, "c": 4096}, ("b", "t", "c")
    made.call("scale", [x], middle, loops, at, load(0, *at) * 2.0)
    pairs = {"b": 4, "t": 32, "h": 2, "c": 4096}
    other = affine(("t", 2), ("h", -1), const=1)
    made.call("swap", [middle], y, pairs, ("b", affine(("t", 2), "h"), "c"), load(0, "b", other, "c"))
    assert all(stage.rows is None for stage in staged(made).stages)


def test_check__a_task_before_what_it_needs__is_not_legal():
    program = staged(token_norm())
    stage, rows = stage_by_rows(program)
    dims = (rows.dims[-1], *rows.dims[:-1])
    turned = replace(stage, tasks=(stage.tasks[-1], *stage.tasks[:-1]), rows=replace(rows, dims=dims))
    with pytest.raises(IllegalFormError, match="grad runs before"):
        check_program(replace(program, stages=(turned,)))


def test_check__rows_that_tasks_do_not_have__are_not_legal():
    program = staged(token_norm())
    stage, rows = stage_by_rows(program)
    wrong = replace(stage, rows=replace(rows, extents=(4, 32), block=1))
    with pytest.raises(IllegalFormError, match=r"has no rows .* of extents \[4, 32\]"):
        check_program(replace(program, stages=(wrong,)))


def test_check__rows_of_an_array_that_others_touch__are_not_legal():
    program = staged(token_norm())
    stage, rows = stage_by_rows(program)
    wrong = replace(stage, rows=replace(rows, local={**rows.local, 0: (0, 1)}))
    with pytest.raises(IllegalFormError, match="x leaves the rows that it is laid out for"):
        check_program(replace(program, stages=(wrong,)))
