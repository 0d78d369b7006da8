"""Forms that mean nothing are found between passes, and the message tells the pass, the place and the rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from kernels_kit import form_after
from small_programs import convolution, long_product, softmax, training_step

from abele.errors import InvalidOptionError
from abele.expr.affine import Affine
from abele.kernels import plan_native
from abele.kernels.illegal import IllegalFormError
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import Const
from abele.kernels.nest.loop_nest import Acc, NestLocal
from abele.kernels.plan.passes import PIPELINE, check_form, run_passes
from abele.kernels.tasks.leaves import LeafTasks
from abele.kernels.tasks.program import Task, TaskProgram, TaskStage
from abele.numerics import i32


def fused() -> TaskProgram:
    step = training_step()
    return form_after("drop_unread", step.buffers, step.calls)


def with_task(number: int, change: Callable[[Task], Task]) -> TaskProgram:
    """The fused training step with one task changed."""
    program = fused()
    tasks = list(program.tasks)
    tasks[number] = change(tasks[number])
    return replace(program, tasks=tuple(tasks))


def with_put(number: int, **changes: object) -> TaskProgram:
    return with_task(number, lambda t: replace(t, puts=(replace(t.puts[0], **changes),)))


BROKEN = {
    "index 7 of z runs from 7 to 7, extent is 6": lambda: with_put(0, index=(Affine((("b", 1),)), Affine((), 7))),
    "sets each element for every n": lambda: with_put(0, index=(Affine((("b", 1),)), Affine((), 0))),
    "q uses q, which is no dim there": lambda: with_put(0, index=(Affine((("b", 1),)), Affine((("q", 1),)))),
    "dense.relu: .* has 1 indices, z 2 dims": lambda: with_put(0, index=(Affine((("b", 1),)),)),
    "acc3 is not known yet": lambda: with_task(0, lambda t: replace(t, locals=(Acc(3),))),
    "local9 is not known yet": lambda: with_put(0, value=NestLocal(9)),
    "is i32 where f32 is wanted": lambda: with_put(0, value=Const(1, i32) + Const(2, i32)),
    "a dim is named twice: b, b": lambda: with_task(0, lambda t: replace(t, parallel=(("b", 32), ("b", 6)))),
    "dim n has extent 0": lambda: with_task(0, lambda t: replace(t, parallel=(("b", 32), ("n", 0)))),
    "grad.sgd reads z before anything is written there": lambda: replace(fused(), tasks=fused().tasks[1:]),
    "buffers .1. of the caller are written": lambda: with_put(1, space=4),
    "the stages have tasks .0, 0. of 4": lambda: replace(fused(), stages=(TaskStage(False, (0, 0)),)),
    "grad.sgd runs before dense.relu, on which it depends": lambda: replace(
        fused(), stages=(TaskStage(False, (1, 0, 2, 3)),)
    ),
}


@pytest.mark.parametrize("message", BROKEN)
def test_check__illegal_program__tells_the_pass_and_the_rule(message: str) -> None:
    with pytest.raises(IllegalFormError, match=f"^pass fuse_tasks: .*{message}") as caught:
        check_form(BROKEN[message](), fused(), "fuse_tasks")
    assert caught.value.remedy == "report this, it is a defect of Abele"


def test_check__task_that_is_illegal__is_shown_whole() -> None:
    with pytest.raises(IllegalFormError) as caught:
        check_form(with_put(0, value=NestLocal(9)), fused(), "fuse_tasks")
    assert "dense+relu: for b<32, n<6" in str(caught.value.at)


def test_check__sum_over_samples_used_in_the_same_stage__is_refused() -> None:
    step = training_step()
    program = form_after("order_stages", step.buffers, step.calls)
    both = TaskStage(True, tuple(n for stage in program.stages for n in stage.tasks))
    with pytest.raises(IllegalFormError, match="norm depends on total, which is whole only after the blocks"):
        check_form(replace(program, stages=(both,)), program, "order_stages")


def test_check__stage_by_blocks_that_meets_other_samples__is_refused() -> None:
    step = training_step()
    program = form_after("order_stages", step.buffers, step.calls)
    dense, *others = program.tasks
    turned = replace(dense, puts=(replace(dense.puts[0], index=(Affine((("b", -1),), 31), Affine((("n", 1),)))),))
    with pytest.raises(IllegalFormError, match="runs by blocks, but meets other samples at"):
        check_form(replace(program, tasks=(turned, *others)), program, "order_stages")


def test_check__loop_over_blocks_without_a_sample_dim__is_refused() -> None:
    made = softmax()
    program = form_after("block_samples", made.buffers, made.calls)
    (leaf,) = program.leaves
    broken = LeafTasks(leaf.tasks, replace(leaf.loop, dims=("i", "b", "b", "b")))
    with pytest.raises(IllegalFormError, match="max has no dim i of 64 samples"):
        check_form(replace(program, leaves=(broken,)), program, "block_samples")


def test_check__dependent_tasks_side_by_side__are_refused() -> None:
    made = long_product()
    program = form_after("lower_tasks", made.buffers, made.calls)
    together = replace(program.leaves[0], functions=tuple(f for leaf in program.leaves for f in leaf.functions))
    with pytest.raises(IllegalFormError, match="product runs beside product, on which it depends"):
        check_form(replace(program, leaves=(together,)), program, "group_leaves")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: replace(f, starts=(1 << 20,) * len(f.spaces)), "runs from .*, the array from -"),
        (lambda f: replace(f, spaces=f.spaces[1:]), "conv has 3 arrays|has 2 arrays, its nest 3|has 1 arrays"),
        (lambda f: replace(f, schedule=replace(f.schedule, order=())), "the schedule runs over"),
        (lambda f: replace(f, schedule=replace(f.schedule, lane="q")), "lanes of q, which is no dim"),
        (lambda f: replace(f, schedule=replace(f.schedule, num_unit_dims=9)), "has 9 dims of units"),
        (lambda f: replace(f, schedule=replace(f.schedule, tile=(("q", 2),))), "the schedule has tile"),
    ],
)
def test_check__function_that_does_not_fit__is_refused(change, message: str) -> None:
    made = convolution()
    program = form_after("choose_schedules", made.buffers, made.calls)
    last = program.leaves[-1]
    broken = replace(last, functions=(change(last.functions[0]), *last.functions[1:]))
    with pytest.raises(IllegalFormError, match=message):
        check_form(replace(program, leaves=(*program.leaves[:-1], broken)), program, "choose_schedules")


def test_run_passes__unknown_name__suggests_the_nearest() -> None:
    step = training_step()
    with pytest.raises(InvalidOptionError, match="the planner has no pass 'fuse_task'") as caught:
        run_passes(bound_calls(step.buffers, step.calls), after="fuse_task")
    assert caught.value.remedy == "'fuse_tasks'"


def test_dump_variable__names_a_folder__every_plan_writes_its_forms(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ABELE_DUMP_PASSES", str(tmp_path / "forms"))
    for made in (training_step(), softmax()):
        plan_native(made.buffers, made.calls)
    first, second = sorted((tmp_path / "forms").iterdir())
    assert (first.name, second.name) == ("plan-001", "plan-002")
    assert len(list(first.iterdir())) == len(PIPELINE)
    assert "dense+relu  for b<32, n<6" in (first / "08-fuse_tasks.txt").read_text(encoding="utf-8")


def test_check_variable__off__costs_nothing_and_checks_nothing(monkeypatch) -> None:
    monkeypatch.setattr("abele.kernels.plan.passes.check_form", lambda *_: pytest.fail("checked"))
    monkeypatch.setenv("ABELE_CHECK_PASSES", "0")
    step = training_step()
    plan_native(step.buffers, step.calls)
