"""Places where a run may be stopped so that memory is in the state after a whole step.

A step is one round of a loop, or one run of the program where there is no loop. State is what one round leaves for
the next: elements that the body reads before it writes them, and writes. A run stops at the end of a round, or inside
one as long as that round has written no state.

Of nested loops the innermost is taken whose rounds leave the state whole: a loop of steps inside a loop of epochs, but
not the loop that accumulates gradients inside a step, where the step goes on after it to write weights that it read.
"""

from __future__ import annotations

from collections.abc import Iterator

from abele.graph import LibraryCall, Program
from abele.graph.flow import Rounds, While
from abele.graph.interval_set import IntervalSet
from abele.runtime.memory.effects import EffectsOf


def step_scopes(program: Program, effects: EffectsOf) -> dict[Program, IntervalSet]:
    """Loops of steps, and the whole program, each with the state that its rounds leave."""
    scopes: dict[Program, IntervalSet] = {}
    _find(program, (program,), effects, scopes)
    return scopes


def _is_loop(step: Program) -> bool:
    return isinstance(step.flow(), Rounds | While)


def _find(owner: Program, body: tuple[Program, ...], effects: EffectsOf, scopes: dict[Program, IntervalSet]) -> None:
    state = scopes[owner] = effects.sequence(body).persistent
    parts = [p for step in body for p in _parts(step)]
    moving = [p for p in parts if _is_loop(p) and effects(p).written.meets(state)]
    # One such loop makes the whole round a step: stopping inside would leave half of it.
    if any(_is_part_of_step(loop, parts, state, effects) for loop in moving):
        return
    for loop in moving:
        _find(loop, loop.children(), effects, scopes)


def _is_part_of_step(loop: Program, parts: list[Program], state: IntervalSet, effects: EffectsOf) -> bool:
    """True if state that the loop reads is written elsewhere in the same round of the code around it."""
    elsewhere = IntervalSet.union(effects(p).written for p in parts if p is not loop) & state
    return elsewhere.meets(effects(loop).exposed)


def _parts(step: Program) -> Iterator[Program]:
    """Loops and plain steps inside a step, not looking into the loops."""
    inside = step.children()
    if not inside or _is_loop(step) or isinstance(step, LibraryCall):
        yield step
        return
    for inner in inside:
        yield from _parts(inner)
