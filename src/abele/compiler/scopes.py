"""Scopes: the parts of a program whose steps run equally often, and their number of entries from a run's counts.

A run does not count steps. It counts the ways of branches and loops that depend on data, one word per way. The
executions of each step follow from the program's structure. A step runs as often as its *scope* is entered: the
innermost ``Repeat``, ``RepeatWhile``, ``If`` or ``Switch`` arm around it. Entries of a scope are those of the scope
around it times the count of a ``Repeat``, or the words of the node. So counting costs a run one addition per decision,
and working the numbers out costs a few operations per scope, for any number of runs at once.

The words of a node inside a function are summed over all calls of it. They are dealt out to the call sites in
proportion to how often each is entered, which keeps the sum over the sites exact.

Example: a ``Repeat`` of 10 around an ``If`` whose first branch was counted 3 times. Its steps ran 10 times, those of
the branches 3 and 7 times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from abele.arrays import Bool, Int64
from abele.compiler.lower import Step, StepBlock
from abele.graph.control import Switch
from abele.graph.program import If, Program, RepeatWhile

TRIP, ENTRY = 0, 1
"""Words of a while loop: rounds of its body, and times that it was entered."""

Rule = Literal["repeat", "looks", "trips", "way"]


def num_ways(node: Program) -> int:
    """Words that a run counts for a node: branches of an If, cases and default of a Switch, two of a while loop."""
    match node:
        case If() | RepeatWhile():
            return 2
        case Switch():
            return len(node.cases) + 1
        case _:
            return 0


@dataclass(frozen=True, eq=False, slots=True)
class RunScope:
    """A part of a program whose steps run equally often.

    Attributes:
        parent: Position of the scope around it.
        rule: ``repeat``: ``amount`` times for each entry of the parent; ``trips``: as the rounds of a while loop;
            ``looks``: as its decisions, one more for each entry; ``way``: as branch ``amount`` is taken.
        amount: See ``rule``.
        node: The node whose words are counted; None for ``repeat``.
    """

    parent: int
    rule: Rule
    amount: int = 1
    node: Program | None = None


class Scopes:
    """The scopes of one lowered program.

    Attributes:
        scopes: Each after the one around it; the first is the whole program.
        steps: Indices of the program's steps, int64[n].
        of_step: Position of the scope of each, int64[n].
    """

    def __init__(self, program: StepBlock) -> None:
        self.scopes: list[RunScope] = [RunScope(-1, "repeat")]
        found: tuple[list[int], list[int]] = ([], [])
        self._walk(program, 0, *found)
        self.steps, self.of_step = (np.array(column, dtype=np.int64) for column in found)

    @property
    def decided(self) -> bool:
        """True if data decides how often some steps run."""
        return any(scope.node is not None for scope in self.scopes)

    def _walk(self, item: Step | StepBlock, scope: int, steps: list[int], of_step: list[int]) -> None:
        """Note index and scope of every step of an item."""
        if isinstance(item, Step):
            steps.append(item.index)
            of_step.append(scope)
            return
        for inner, inside in zip(item.items, self._inside(item, scope), strict=True):
            self._walk(inner, inside, steps, of_step)

    def _inside(self, block: StepBlock, scope: int) -> list[int]:
        """The scope of each item of a block."""
        match block.kind:
            case "repeat":
                return [self._add(RunScope(scope, "repeat", block.count))] * len(block.items)
            case "while":
                # Condition and decision happen once more than the body for each time that the loop is entered.
                looks = self._add(RunScope(scope, "looks", node=block.node))
                return [looks, looks, self._add(RunScope(scope, "trips", node=block.node))]
            case "if":
                return [self._add(RunScope(scope, "way", way, block.node)) for way in range(len(block.items))]
            case _:
                return [scope] * len(block.items)

    def _add(self, scope: RunScope) -> int:
        self.scopes.append(scope)
        return len(self.scopes) - 1

    def entries(self, words: Int64, places: Mapping[Program, slice]) -> tuple[Int64, Bool]:
        """Times that each scope is entered in some runs, and true where they were counted.

        Args:
            words: Counts of each run, int64[runs, words].
            places: Range of each node's words.

        Returns:
            Entries, int64[runs, scopes], and whether they are known rather than assumed, bool[runs, scopes]. Loops and
            branches that a run entered without counting (a host kernel stands for them) are as the compiler assumes.
        """
        entries = np.ones((len(words), len(self.scopes)), dtype=np.int64)
        known = np.ones(entries.shape, dtype=bool)
        for position, scope in enumerate(self.scopes[1:], start=1):
            outer, told = entries[:, scope.parent], known[:, scope.parent]
            if scope.node is None:
                entries[:, position], known[:, position] = outer * scope.amount, told
                continue
            counts = words[:, places[scope.node]]
            # Uncounted: one trip per entry, and the first way.
            assumed = outer if scope.rule != "way" or scope.amount == 0 else np.zeros_like(outer)
            counted, total = _counted(scope, counts)
            entries[:, position] = np.where(total > 0, _dealt_out(counted, outer, total), assumed)
            known[:, position] = (total > 0) | (told & (outer == 0))
        return entries, known


def _counted(scope: RunScope, counts: Int64) -> tuple[Int64, Int64]:
    """Entries of a scope over all call sites, and those of its node, int64[runs] each."""
    if scope.rule == "way":
        return counts[:, scope.amount], counts.sum(axis=1)
    trips, total = counts[:, TRIP], counts[:, ENTRY]
    return (trips + total if scope.rule == "looks" else trips), total


def _dealt_out(counted: Int64, outer: Int64, total: Int64) -> Int64:
    """The part of ``counted`` that falls to a call site with ``outer`` of ``total`` entries, rounded.

    One site has all entries, and its number is exact; several share it, where doubles are exact to 2**53.
    """
    share = np.rint(counted * (outer / np.maximum(total, 1))).astype(np.int64)
    return np.where(outer == total, counted, share)
