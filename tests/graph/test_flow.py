"""Order of the steps inside a node, and tables of the meanings of nodes."""

from __future__ import annotations

import pytest

from abele.errors import ControlProgramError
from abele.graph import Graph, If, Program, Repeat, RepeatWhileFalse, Sequence, Switch, Sync
from abele.graph.flow import InOrder, OneOf, Rounds, While
from abele.graph.meanings import Meanings


def test_flow__of_each_kind_of_node__says_what_follows_what() -> None:
    graph = Graph("bow")
    flag, number = graph.variable("bool", (), name="flag"), graph.variable("i32", (), name="number")
    a, b, c = Sync(), Sync("external"), Sequence()
    assert a.flow() == InOrder(())
    assert Sequence(a, b).flow() == InOrder((a, b))
    assert Repeat(3, a).flow() == Rounds(3, a)
    assert RepeatWhileFalse(a, flag, b).flow() == While(a, flag, False, b)
    branch = If(flag, a, b).flow()
    assert isinstance(branch, OneOf)
    assert (branch.selector, branch.ways, branch.titles) == (flag, (a, b), ("then", "else"))
    assert [branch.pick(v) for v in (0, 1, 7)] == [1, 0, 0]
    switch = Switch(number, {4: a, -1: b}, c).flow()
    assert isinstance(switch, OneOf)
    assert switch.titles == ("case 4", "case -1", "default")
    assert [switch.ways[switch.pick(v)] for v in (4, -1, 0)] == [a, b, c]


def test_flow__switch_whose_default_is_unreachable__picks_no_way_for_other_numbers() -> None:
    graph = Graph("bow")
    switch = Switch(graph.variable("i32", (), name="n"), {1: Sync()}, unreachable_default=True).flow()
    assert isinstance(switch, OneOf)
    assert switch.titles == ("case 1", "unreachable default")
    assert (switch.pick(1), switch.pick(2)) == (0, None)


class Wait(Sync):
    """A kind of barrier that no room was told of."""


def test_meanings__kind_that_derives_from_a_known_one__means_the_same() -> None:
    known = Meanings("can be drawn", {Sync: "a line"})
    assert known.of(Wait()) == "a line"
    assert known.add(Wait, "a dashed line") == known.of(Wait()) == "a dashed line"
    assert known.of(Sync()) == "a line"
    known.remove(Wait)
    assert list(known) == [Sync]


def test_meanings__kind_that_nobody_entered__is_refused_by_name_and_place() -> None:
    known: Meanings[str] = Meanings("can be drawn", {Sync: "a line"})
    with pytest.raises(ControlProgramError, match="a Sequence is no program step that can be drawn") as caught:
        known.of(Sequence())
    assert "test_flow.py" in str(caught.value)
    assert known.find(Program) is None
    with pytest.raises(ControlProgramError, match="Sync is entered a second time"):
        known.add(Sync, "a cross")
