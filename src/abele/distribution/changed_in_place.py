"""State that a network changes element by element: the new contents are written where the old ones are.

A training step that a user wrote ends in maps such as ``w − lr · g``. Where the map is the last to read ``w``, it
writes its result onto it: nothing is copied back, and the gradient is made where the weight lies. So do updates of
rows, and loops and branches: a cache that a loop carries is the loop's variable, and one that only some branches
change stays where it is in the others. State that anything reads later, be it through a view, is copied to when all
have read it.

Changes of one state follow each other: of ``keys → rows 0 set → loop → new keys`` each takes the place of the one
before it. The same is asked of bodies, of what a loop carries and what branches hand on: there a parameter is the
state, and a result its new contents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from abele.network.ir import Network, NetworkOp, OpBlock, Value
from abele.network.registry import RULES

_MAKE = frozenset({"map", "cast", "matmul", "linear", "reduce", "nonlinearity", "nonlinearity_grad", "look_up", "norm"})
_MAKE |= {"softmax", "log_softmax", "convolution", "add_rows", "norm_grad", "norm_grad_parameters", "update_rows"}
_MAKE |= {"loop", "while", "cond", "switch", "cached_attention", "page_places", "quantised_linear"}
"""Kinds whose results are variables of their own; results of others may show operands."""

_FIRST = frozenset({"update_rows", "write_row", "write_window"})
"""Kinds that change their first operand, be it a view of all of a state."""

_VIEWS = frozenset({"reshape", "permute"})
"""Kinds that show all of their operand."""


@dataclass(frozen=True)
class StateChange:
    """New contents of a state that may be written onto the old ones.

    Attributes:
        state: The state.
        before: The contents that they replace: the state, or those of an earlier change.
        operand: The operand of the op that has them: a view of them, or they themselves.
        shown: They, and what shows their elements.
    """

    state: Value
    before: Value
    operand: Value
    shown: frozenset[Value]


def changed_in_place(net: Network) -> dict[Value, StateChange]:
    """New contents of states by the values that are computed for them."""
    leaving = {*net.outputs, *net.updates.values(), *net.changed_inputs.values()}
    homes = {state: new for state, new in net.updates.items() if state not in net.accumulators}
    return _changes(net.ops, homes, leaving)


def changed_in_block(block: OpBlock, homes: Mapping[int, int]) -> dict[Value, StateChange]:
    """The same of a body.

    Args:
        block: The body.
        homes: Numbers of the results that are new contents of parameters, by the numbers of these.
    """
    given = {block.parameters[p]: block.results[r] for p, r in homes.items()}
    return _changes(block.ops, given, set(block.results))


def comes_from(block: OpBlock, parameter: int, result: int) -> bool:
    """True if a result of a body is one of its parameters, as it is or after changes that leave it where it lies."""
    state, new = block.parameters[parameter], block.results[result]
    return new is state or bool(_path(state, new, _makers(block)))


def _changes(
    ops: Sequence[NetworkOp], homes: Mapping[Value, Value], leaving: Collection[Value]
) -> dict[Value, StateChange]:
    place = {op: n for n, op in enumerate(ops)}
    readers: dict[Value, list[NetworkOp]] = {}
    for op in ops:
        for value in op.inputs:
            readers.setdefault(value, []).append(op)
    made_by = {v: op for op in ops for v in op.outputs}
    found: dict[Value, StateChange] = {}
    for state, new in homes.items():
        links: list[tuple[Value, StateChange]] = []
        for before, operand, maker, after in _path(state, new, made_by):
            shown = _shown(before, readers, maker)
            others = [op for value in shown for op in readers.get(value, ()) if op is not maker]
            alone = shown.isdisjoint(leaving) and shown.isdisjoint({*maker.inputs} - {operand})
            if not alone or after in found or any(place[op] >= place[maker] for op in others):
                break
            links.append((after, StateChange(state, before, operand, frozenset(shown))))
        else:
            found.update(links)
    return found


@lru_cache(maxsize=256)
def _makers(block: OpBlock) -> dict[Value, NetworkOp]:
    return {v: op for op in block.ops for v in op.outputs}


_Link = tuple[Value, Value, NetworkOp, Value]


def _path(state: Value, new: Value, made_by: Mapping[Value, NetworkOp]) -> list[_Link]:
    """Changes that lead from a state to its new contents: what each replaces, its operand, its op, and what it makes.

    Between them may be views, as rows [64, 16] are set of a cache [64, 2, 8].
    """
    path, value = list[_Link](), _behind_views(new, made_by)
    while value is not state:
        maker = made_by.get(value)
        if maker is None or value.place != state.place:
            return []
        fits = list(_changed_by(maker, value))
        if maker.kind == "map":
            # Maps follow no other map: what lies between would have to be laid out like the state, too.
            fits = [v for v in fits if v.type == state.type == value.type]
            if state not in fits:
                fits = [v for v in fits if v in made_by and made_by[v].kind not in ("map", *_VIEWS)]
        operand = state if state in fits else fits[0] if len(fits) == 1 else None
        if operand is None:
            return []
        before = operand if maker.kind == "map" else _behind_views(operand, made_by)
        path.append((before, operand, maker, value))
        value = before
    return path[::-1]


def _behind_views(value: Value, made_by: Mapping[Value, NetworkOp]) -> Value:
    """The value whose elements another one shows, all of them."""
    maker = made_by.get(value)
    while maker is not None and maker.kind in _VIEWS:
        value = maker.inputs[0]
        maker = made_by.get(value)
    return value


def _changed_by(op: NetworkOp, made: Value) -> Iterator[Value]:
    """Operands onto which an op can write one of its results."""
    if op.kind == "map":
        yield from op.inputs
        return
    number, possible = op.outputs.index(made), list[int]()
    if op.kind in _FIRST or op.kind in ("loop", "while"):
        possible = [number]
    elif op.kind in ("cond", "switch"):
        possible = [n for n, v in enumerate(op.inputs) if n and v.type == made.type]
        possible = [n for n in possible if any(comes_from(r, n - 1, number) for r in op.regions)]
    elif op.function is not None:
        body = op.function.body
        possible = [n for n, v in enumerate(op.inputs) if v.type == made.type and comes_from(body, n, number)]
    # What reads the old contents beside has to have them.
    yield from (op.inputs[n] for n in possible if op.inputs.count(op.inputs[n]) == 1)


def _shown(state: Value, readers: Mapping[Value, Sequence[NetworkOp]], changing: NetworkOp) -> set[Value]:
    """A value and what may show its elements, but for what the op makes that changes it."""
    shown, waiting = {state}, [state]
    for value in waiting:  # It grows.
        for op in readers.get(value, ()):
            if op.kind not in _MAKE and op is not changing:
                waiting.extend(v for v in op.outputs if v not in shown)
                shown.update(op.outputs)
    return shown


def gradients_like(net: Network, changes: dict[Value, StateChange]) -> dict[Value, Value]:
    """The state that each product in a change of states is to lie like: a weight if there is one."""
    made_by = net.made_by()
    planned = {v for op in net.ops if op.kind in RULES and RULES[op.kind].planned for v in op.inputs}
    found: dict[Value, Value] = {}
    for new, change in changes.items():
        waiting = [new]
        for value in waiting:  # It grows.
            maker = made_by.get(value)
            if maker is None:
                continue
            if maker.kind == "map":
                waiting.extend(v for v in maker.inputs if v.shape == new.shape and v not in waiting)
            elif RULES[maker.kind].planned and (value not in found or change.state in planned):
                found[value] = change.state
    return found
