"""Counting issue slots: what every stretch of straight-line code and every loop iteration of a codelet costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from abele.codelet import slots
from abele.codelet.code import Charges
from abele.codelet.schedule import Schedule
from abele.codelet.slots import Cost
from abele.codelet.tree import (
    Assign,
    Binary,
    Cast,
    Choice,
    Compare,
    Const,
    DebugOnly,
    Element,
    Evaluate,
    Expr,
    For,
    Helper,
    HelperCall,
    If,
    Leave,
    Length,
    Local,
    Logic,
    Math,
    Return,
    Scalar,
    Stmt,
    Store,
    Unary,
    While,
    assigned,
    own_expressions,
    walk,
)
from abele.numerics import bool_


@dataclass
class LoopContext:
    """The innermost loop around code.

    Attributes:
        variables: Local variables that change in it.
        stored: Names of fields that it writes.
        counters: Loop variable, by which addresses are stepped for free.
        hoisted: Expressions that do not change in it, by structure; they are evaluated once, before it.
    """

    variables: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    counter: str = ""
    hoisted: dict[Any, Expr] = field(default_factory=dict)

    def is_invariant(self, expression: Expr) -> bool:
        """Whether ``expression`` has one value throughout the loop."""
        for part in expression.walk():
            if isinstance(part, HelperCall) or (isinstance(part, Math) and part.function == "random_u32"):
                return False
            if isinstance(part, Local) and part.name in self.variables:
                return False
            if isinstance(part, Element | Scalar) and part.field.name in self.stored:
                return False
        return True


class Segment:
    """Straight-line code being costed.

    Attributes:
        schedule: Its operations.
        ready: Slot from which each local variable set in it is there.
        known: Slot from which each expression evaluated in it is there.
    """

    def __init__(self, loop: LoopContext | None) -> None:
        self.loop = loop
        self.schedule = Schedule()
        self.ready: dict[str, int] = {}
        self.known: dict[Expr, int] = {}
        self.steps_counter = False

    def value(self, e: Expr) -> int:
        """Evaluate ``e``; returns the slot from which it is there."""
        if isinstance(e, Const):
            return 0
        if isinstance(e, Local):
            self.steps_counter |= self.loop is not None and e.name == self.loop.counter
            return self.ready.get(e.name, 0)
        if self.loop is not None and self.loop.is_invariant(e):
            self.loop.hoisted.setdefault(_structure(e), e)
            return 0
        if e not in self.known:
            self.known[e] = self._evaluate(e)
        return self.known[e]

    def _all(self, expressions: Iterable[Expr]) -> int:
        return max([self.value(e) for e in expressions], default=0)

    def _evaluate(self, e: Expr) -> int:
        place = self.schedule.place
        match e:
            case Element():
                return place(slots.LOAD, self.address(e.index))
            case Scalar():
                return place(slots.LOAD)
            case Length():
                return place(slots.LOAD, 0 if e.row is None else self.address((e.row,)))
            case Cast():
                return self._cast(e)
            case Compare() if e.left.type.is_float:
                return place(slots.FLOAT_COMPARE, self._all(e.parts), aux_first=True)
            case Math():
                return place(slots.FUNCTIONS[e.function], self._all(e.parts), aux_first=True)
            case Choice():
                return place(slots.SELECT, self._all(e.parts))
            case Binary():
                return place(_binary_cost(e), self._all(e.parts))
            case Unary() | Compare() | Logic():
                return place(slots.AUX if e.type.is_float else slots.MAIN, self._all(e.parts))
            case HelperCall():
                return self._all(e.parts)
        raise TypeError(f"{e!r} has no cost")

    def _cast(self, e: Cast) -> int:
        have, wanted, after = e.arg.type, e.type, self.value(e.arg)
        if have.is_float and wanted.is_float:
            return self.schedule.place(slots.FLOAT_TO_FLOAT, after)
        if have.is_float:
            return self.schedule.place(slots.FLOAT_TO_INT, after, aux_first=True)
        if wanted.is_float:
            return self.schedule.place(slots.INT_TO_FLOAT, after)
        narrows = wanted.bits < min(have.bits, 32) and have != bool_
        return self.schedule.place(slots.MAIN, after) if narrows else after

    def address(self, index: tuple[Expr, ...]) -> int:
        """The address of an element; free where it moves by a constant with the loop variable."""
        return max([0 if self._steps(i) else self.value(i) for i in index], default=0)

    def _steps(self, index: Expr) -> bool:
        """Whether ``index`` is the loop variable times an invariant, plus an invariant."""
        loop = self.loop
        if loop is None or not loop.counter:
            return False
        if isinstance(index, Local):
            return index.name == loop.counter
        if not isinstance(index, Binary) or index.op not in ("add", "sub", "mul"):
            return False
        sides = (index.left, index.right)
        fixed = [s for s in sides if loop.is_invariant(s)]
        return len(fixed) == 1 and self._steps(next(s for s in sides if s is not fixed[0]))

    def simple(self, statement: Stmt) -> None:
        """A statement without statements inside."""
        match statement:
            case Assign():
                self.ready[statement.name] = self.value(statement.value)
            case Store():
                small = statement.field.type.bits < 32
                after = max(self.value(statement.value), self.address(statement.index))
                self.schedule.place(slots.STORE_PART if small else slots.STORE, after)
            case Leave():
                self.schedule.place(slots.LEAVE, self.schedule.length)
            case Evaluate() | Return():
                self._all(own_expressions(statement))
            case DebugOnly():
                pass


@dataclass
class Counting:
    """Costs of one codelet.

    Attributes:
        charges: Slots by place.
        code_bytes: Size of its code.
    """

    charges: Charges = field(default_factory=Charges)
    code_bytes: int = 0
    _helpers: set[Helper] = field(default_factory=set, repr=False)

    def block(self, body: list[Stmt], loop: LoopContext | None) -> tuple[Segment | None, int]:
        """Cost ``body``; returns its only segment, or None where control flow splits it, and the slots of the last."""
        segment, first, split = Segment(loop), None, False
        for statement in body:
            first = first or statement
            self._helpers_of(statement)
            if not isinstance(statement, If | While | For):
                segment.simple(statement)
                continue
            split = True
            self._control(statement, segment, loop)
            self._close(first, segment)
            segment, first = Segment(loop), None
        if split:
            self._close(first, segment)
        return None if split else segment, segment.schedule.length

    def straight(self, body: list[Stmt], loop: LoopContext | None) -> None:
        """Cost ``body``, which is nobody's only segment."""
        segment, _ = self.block(body, loop)
        if segment is not None and body:
            self._close(body[0], segment)

    def _close(self, first: Stmt | None, segment: Segment) -> None:
        self.code_bytes += segment.schedule.code_bytes
        if first is not None and segment.schedule.length:
            before = self.charges.before.get(first, 0)
            self.charges.before[first] = before + segment.schedule.length

    def _helpers_of(self, statement: Stmt) -> None:
        for expression in own_expressions(statement):
            for part in expression.walk():
                if isinstance(part, HelperCall) and part.helper not in self._helpers:
                    self._helpers.add(part.helper)
                    self.straight(part.helper.body, None)

    def _control(self, statement: Stmt, segment: Segment, loop: LoopContext | None) -> None:
        match statement:
            case If():
                segment.schedule.place(slots.BRANCH, segment.value(statement.condition))
                self._branches(statement, loop)
            case For():
                self._for(statement, segment)
            case While():
                self._while(statement, segment)

    def _branches(self, statement: If, loop: LoopContext | None) -> None:
        self.straight(statement.then, loop)
        self.straight(statement.otherwise, loop)
        if statement.then and statement.otherwise:  # the jump over the other branch
            first = statement.then[0]
            self.charges.before[first] = self.charges.before.get(first, 0) + slots.BRANCH.main
            self.code_bytes += slots.INSTRUCTION_BYTES

    def _for(self, statement: For, outer: Segment) -> None:
        loop = LoopContext(assigned([statement]), stored_fields(statement.body), statement.name)
        segment, _ = self.block(statement.body, loop)
        repeats = segment is not None and segment.schedule.length <= slots.REPEAT_LIMIT
        if segment is not None:
            self._one_segment(statement, segment, repeats)
        else:
            self.charges.iteration[statement] = slots.BRANCH.main
        setup = slots.REPEAT_SETUP if repeats else slots.COUNTED_SETUP
        after = max(outer.value(statement.start), outer.value(statement.stop))
        if not isinstance(statement.start, Const):
            after = outer.schedule.place(slots.MAIN, after)
        for expression in loop.hoisted.values():
            outer.value(expression)
        outer.schedule.place(Cost(main=setup), after)

    def _one_segment(self, statement: For, segment: Segment, repeats: bool) -> None:
        """A loop body of straight-line code: stepping the loop variable and counting share its bundles."""
        if segment.steps_counter:
            segment.schedule.place(slots.MAIN)
        if not repeats:
            segment.schedule.place(slots.BRANCH)
        self.code_bytes += segment.schedule.code_bytes
        self.charges.iteration[statement] = segment.schedule.length

    def _while(self, statement: While, outer: Segment) -> None:
        loop = LoopContext(assigned([statement]), stored_fields(statement.body))
        self.straight(statement.body, loop)
        test = Segment(loop)
        test.schedule.place(slots.BRANCH, test.value(statement.condition))
        self.charges.iteration[statement] = test.schedule.length
        self.code_bytes += test.schedule.code_bytes
        for expression in loop.hoisted.values():
            outer.value(expression)
        outer.schedule.place(slots.BRANCH, outer.value(statement.condition))


def count(function: Helper, num_edges: int) -> Counting:
    """Costs of a codelet's ``compute``, whose vertex has ``num_edges`` edges to load pointers of."""
    counting = Counting()
    counting.straight(function.body, None)
    if function.body:
        first = function.body[0]
        pointers = num_edges * slots.POINTER_SLOTS
        counting.charges.before[first] = counting.charges.before.get(first, 0) + pointers
    counting.code_bytes += (num_edges + slots.ENTRY_SLOTS) * slots.INSTRUCTION_BYTES
    return counting


def stored_fields(body: list[Stmt]) -> set[str]:
    """Names of fields that ``body`` writes, called helpers included."""
    found = {s.field.name for s in walk(body) if isinstance(s, Store)}
    for statement in walk(body):
        for expression in own_expressions(statement):
            for part in expression.walk():
                if isinstance(part, HelperCall):
                    found |= stored_fields(part.helper.body)
    return found


def _binary_cost(e: Binary) -> Cost:
    if e.type.is_float:
        return slots.FLOAT_DIVIDE if e.op == "div" else slots.AUX
    if e.op in ("floordiv", "mod") and not _is_power_of_two(e.right):
        return slots.DIVIDE if e.op == "floordiv" else slots.REMAINDER
    return slots.MAIN


def _is_power_of_two(e: Expr) -> bool:
    return isinstance(e, Const) and int(e.value) > 0 and int(e.value) & (int(e.value) - 1) == 0


def _structure(e: Expr) -> Any:
    """What is equal for two expressions that read the same."""
    own = tuple(
        (k, v if not isinstance(v, Expr | tuple) else None)
        for k, v in vars(e).items()
        if k not in ("line",) and not isinstance(v, Expr)
    )
    return type(e), own, tuple(_structure(p) for p in e.parts)
