"""State that a network changes element by element: the new contents are written where the old ones are.

A training step that a user wrote ends in maps such as ``w − lr · g``. Where the map is the last to read ``w``, it
writes its result onto it: nothing is copied back, and the gradient is made where the weight lies. So do updates of
rows. State that anything
reads later, be it through a view, is copied to when all have read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abele.network.ir import Network, NetworkOp, Value
from abele.network.registry import RULES

_MAKE = frozenset({"map", "cast", "matmul", "linear", "reduce", "nonlinearity", "nonlinearity_grad", "look_up", "norm"})
_MAKE |= {"softmax", "log_softmax", "convolution", "add_rows", "norm_grad", "norm_grad_parameters", "update_rows"}
"""Kinds whose results are variables of their own; results of others may show operands."""


@dataclass(frozen=True)
class StateChange:
    """New contents of a state that may be written onto the old ones.

    Attributes:
        state: The state.
        shown: It, and what shows its elements.
    """

    state: Value
    shown: frozenset[Value]


def changed_in_place(net: Network) -> dict[Value, StateChange]:
    """New contents of states by the values that are computed for them."""
    place = {op: n for n, op in enumerate(net.ops)}
    readers: dict[Value, list[NetworkOp]] = {}
    for op in net.ops:
        for value in op.inputs:
            readers.setdefault(value, []).append(op)
    made_by, leaving = net.made_by(), {*net.outputs, *net.updates.values(), *net.changed_inputs.values()}
    found: dict[Value, StateChange] = {}
    for state, new in net.updates.items():
        maker = made_by.get(new)
        changes = maker is not None and state in _changed_by(maker)
        fits = changes and new.type == state.type and new.place == state.place
        if maker is None or not fits or state in net.accumulators or new in found:
            continue
        shown = _shown(state, readers)
        others = [op for value in shown for op in readers.get(value, ()) if op is not maker]
        alone = shown.isdisjoint(leaving) and shown.isdisjoint({*maker.inputs} - {state})
        if alone and all(place[op] < place[maker] for op in others):
            found[new] = StateChange(state, frozenset(shown))
    return found


def _changed_by(op: NetworkOp) -> Sequence[Value]:
    """Operands onto which an op can write its result."""
    return op.inputs if op.kind == "map" else op.inputs[:1] if op.kind == "update_rows" else ()


def _shown(state: Value, readers: dict[Value, list[NetworkOp]]) -> set[Value]:
    """A state and what may show its elements."""
    shown, waiting = {state}, [state]
    for value in waiting:  # It grows.
        for op in readers.get(value, ()):
            if op.kind not in _MAKE:
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
