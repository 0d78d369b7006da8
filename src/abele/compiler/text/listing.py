"""The lowered program as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from abele.compiler.lower import Step, StepBlock
from abele.compiler.nodes.lookup import meaning_of
from abele.compiler.reasons import reasons_of
from abele.compiler.text.plan import phase_lines, reason_text
from abele.compiler.text.words import bounded
from abele.compiler.timeline import parts_of
from abele.compiler.uses import field_uses
from abele.graph.flow import OneOf
from abele.graph.program import Execute
from abele.words import counted

if TYPE_CHECKING:
    from abele.compiler.executable import Executable
    from abele.compiler.run_account import RunAccount

_HEAD = f"{'step':>6} {'kind':<13} {'times':>8} {'sync':>8} {'exchange':>9} {'compute':>9} {'host':>9}  name"


def listing_text(
    executable: Executable, *, reasons: bool = True, most: int = 2000, account: RunAccount | None = None
) -> str:
    """Lowered program: every step with its cycles, and the compiler's insertions.

    Args:
        executable: The compiled program.
        reasons: True to list the traffic of each step between tiles, and its reasons, where it is listed first.
        most: Most lines; further ones are counted.
        account: Counts and costs of its runs; the assumptions when left out.

    Cycles are of one execution; a ``~`` marks steps whose number of executions is assumed until a run says it.
    """
    lister = _Lister(executable, account or executable.assumptions, reasons)
    return "\n".join(bounded(lister.lines(), most))


class _Lister:
    def __init__(self, executable: Executable, account: RunAccount, reasons: bool) -> None:
        self._executable = executable
        self._account = account
        programs = range(len(executable.programs))
        self._supersteps = [account.supersteps(program, executable.plan) for program in programs]
        self._reasons = reasons
        self._explained: set[int] = set()

    def lines(self) -> Iterator[str]:
        executable = self._executable
        for number, (name, block) in enumerate(zip(executable.program_names, executable.lowered.programs, strict=True)):
            steps = sum(1 for _ in block.steps())
            cycles = executable.cycles_of(number, self._account)
            yield f"program {name!r}: {counted(steps, 'step')}, {cycles:,} cycles per run"
            yield _HEAD
            yield from self._item(block, 0)

    def _item(self, item: Step | StepBlock, depth: int) -> Iterator[str]:
        if isinstance(item, Step):
            yield from self._step(item, depth)
            return
        if item.kind == "repeat":
            yield _aside(f"repeat {item.count:,} times", depth)
        elif item.kind == "while":
            yield _aside("repeat while", depth)
        titles = _titles(item)
        for way, inner in enumerate(item.items):
            if titles:
                yield _aside(titles[way], depth)
            yield from self._item(inner, depth + (item.kind != "sequence"))

    def _step(self, step: Step, depth: int) -> Iterator[str]:
        account = self._account
        parts = parts_of(self._supersteps[step.program][step.superstep], self._executable.system)
        sync, exchange, compute, host = (
            sum(getattr(p, column) for p in parts) for column in ("sync", "exchange", "compute", "host")
        )
        times = f"{'~' if account.assumed[step.index] else ''}{int(account.executions[step.index]):,}"
        yield (
            f"{step.index:>6} {step.kind:<13} {times:>8} {sync:>8,} {exchange:>9,} {compute:>9,} {host:>9,}  "
            f"{'  ' * depth}{step.name}{f' [{step.block}]' if step.block else ''}"
        )
        if self._reasons and step.superstep not in self._explained:
            self._explained.add(step.superstep)
            yield from (f"{'':>20}{'  ' * depth}{line}" for line in self._inserted(step))

    def _inserted(self, step: Step) -> Iterator[str]:
        """Traffic of a step, and its reasons."""
        superstep = self._executable.plan[step.superstep]
        if not any((superstep.before, superstep.after, superstep.gather, superstep.scatter)):
            return
        yield from phase_lines(superstep)
        yield from meaning_of(step.node).why(step.node)
        if isinstance(step.node, Execute):
            uses = field_uses(step.node.compute_set.groups)
            yield from map(reason_text, reasons_of(uses, self._executable.layout))


def _titles(block: StepBlock) -> tuple[str, ...]:
    """Titles of the items of a branch."""
    flow = block.node.flow() if block.node is not None else None
    return flow.titles if isinstance(flow, OneOf) else ()


def _aside(text: str, depth: int) -> str:
    return f"{'':>70}{'  ' * depth}{text}"
