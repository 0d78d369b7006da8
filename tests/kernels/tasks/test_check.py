"""Tasks found legal once are not checked again, unless a space that they touch is another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abele.kernels.illegal import IllegalFormError
from abele.kernels.nest.ir import affine, apply
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks import check
from abele.kernels.tasks.check import check_task
from abele.kernels.tasks.program import Put, Ref, Space, Task
from abele.numerics import f32, i32


def doubled() -> tuple[Task, list[Space]]:
    """``b[i] = a[i] + a[i]``, and a space that it does not touch."""
    spaces = [Space(n, (8,), f32, None, name) for n, name in enumerate(("a", "b", "c"))]
    read = Ref(0, (affine("i"),))
    return Task("doubled", (("i", 8),), (), (), (Put(1, (affine("i"),), apply("add", read, read)),)), spaces


def test_task__found_legal__is_not_checked_again_among_the_same_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    task, spaces = doubled()
    check_task(task, spaces)
    monkeypatch.setattr(check, "_TaskCheck", lambda *_: pytest.fail("checked again"))
    check_task(task, spaces)
    check_task(task, [replace(s) for s in spaces])
    check_task(task, [*spaces[:2], replace(spaces[2], shape=(4,))])
    check_task(task, spaces[:2])


@pytest.mark.parametrize(
    ("number", "change", "problem"),
    [
        (0, {"shape": (7,)}, "runs from 0 to 7, extent is 7"),
        (1, {"shape": (8, 1)}, "has 1 indices"),
        (1, {"type": i32}, "is f32 where i32 is wanted"),
    ],
)
def test_task__found_legal__is_refused_among_spaces_where_it_is_not(
    number: int, change: dict[str, object], problem: str
) -> None:
    task, spaces = doubled()
    check_task(task, spaces)
    spaces[number] = replace(spaces[number], **change)
    with pytest.raises(IllegalFormError, match=problem):
        check_task(task, spaces)


def test_task__whose_space_is_gone__is_refused() -> None:
    task, spaces = doubled()
    check_task(task, spaces)
    with pytest.raises(IllegalFormError, match="is of no space"):
        check_task(task, spaces[:1])


def test_task__made_of_a_legal_one__is_checked_by_itself() -> None:
    task, spaces = doubled()
    check_task(task, spaces)
    with pytest.raises(IllegalFormError, match="runs from 0 to 8"):
        check_task(replace(task, parallel=(("i", 9),)), spaces)


def test_rewrite__that_changes_nothing__keeps_the_expression() -> None:
    value = apply("add", apply("mul", Ref(0, (affine("i"),)), 2.0), Ref(1, (affine("i"),)))
    assert rewrite(value, lambda _: None) is value
    changed = rewrite(value, lambda part: Ref(2, part.index) if isinstance(part, Ref) and part.space == 1 else None)
    assert changed == apply("add", value.args[0], Ref(2, (affine("i"),)))
    assert changed.args[0] is value.args[0]
