"""Trips: how often each step ran, from the ways that a run took where data decides."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from abele.compiler import Executable
from abele.graph import Call, Function, If, Program, Repeat, RepeatWhile, Switch
from abele.graph.intervals import Int64

Ways = Mapping[Program, tuple[int, ...]]


class _Walk:
    """Executions of every node of a program, in program order; a node comes up once for each place that it has.

    Ways are counted over all calls of a function together. They are dealt out to its calls as these run.

    Args:
        ways: How often a run went each way of each node that decides.
        calls: Executions of all calls of each function together; None when they are not known yet.
    """

    def __init__(self, ways: Ways, calls: Mapping[Function, Fraction] | None) -> None:
        self._ways = ways
        self._known_calls = calls
        self.calls: dict[Function, Fraction] = defaultdict(Fraction)
        self.found: dict[Program, deque[Fraction]] = defaultdict(deque)

    def visit(self, node: Program, times: Fraction, share: Fraction) -> None:
        """Note a node that runs a number of times, and a share of all times that it runs anywhere."""
        taken = tuple(share * n for n in self._ways.get(node, ()))
        match node:
            case RepeatWhile():
                self.found[node].append(times + taken[0])
                self.visit(node.condition, times + taken[0], share)
                self.visit(node.body, taken[0], share)
                return
            case If():
                branches: tuple[Program, ...] = (node.then, node.otherwise)
            case Switch():
                branches = (*node.cases.values(), node.default)
            case Call():
                self._call(node, times, share)
                return
            case _:
                self.found[node].append(times)
                inner = times * node.count if isinstance(node, Repeat) else times
                for child in node.children():
                    self.visit(child, inner, share)
                return
        self.found[node].append(times)
        for branch, count in zip(branches, taken, strict=True):
            self.visit(branch, count, share)

    def _call(self, call: Call, times: Fraction, share: Fraction) -> None:
        function = call.function
        self.found[call].append(times)
        self.calls[function] += times
        for copy in call.copies_in:
            self.visit(copy, times, share)
        self.visit(function.body, times, self._share_of(function, times))
        for copy in call.copies_out:
            self.visit(copy, times, share)

    def _share_of(self, function: Function, times: Fraction) -> Fraction:
        if self._known_calls is None:
            return Fraction(1)
        total = self._known_calls[function]
        return times / total if total else Fraction(0)


def counted_executions(executable: Executable, program: int, ways: Ways) -> Int64:
    """Times that each step of the executable ran in one run of its program, int64[steps].

    Args:
        executable: The executable.
        program: Position of the program that ran; steps of the others stay as they were.
        ways: How often its run went each way.
    """
    root = executable.programs[program]
    first = _Walk(ways, None)
    first.visit(root, Fraction(1), Fraction(1))
    walk = _Walk(ways, first.calls)
    walk.visit(root, Fraction(1), Fraction(1))
    executions = np.array(executable.executions, dtype=np.int64)
    for step in executable.steps:
        if step.program == program and walk.found[step.node]:
            executions[step.index] = round(walk.found[step.node].popleft())
    return executions
