"""Counting issue slots: what every stretch of straight-line code and every loop iteration of a codelet costs.

The count follows the code that a scalar compiler would make, structure by structure: straight-line code is scheduled
into bundles (:mod:`~abele.codelet.schedule`), equal expressions of one stretch are evaluated once, invariant ones are
hoisted out of the innermost loop, and addresses that move linearly with the loop variable are stepped by the loop.
Stretches end where control flow splits, since bundles do not reach across a branch. The result is a number of slots for
each place in the code (``Charges``), which the counting function adds up along the way that data or lengths take: so
costs are exact for this model, for any trip counts, without running the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from abele.codelet import slots
from abele.codelet.code import Charges
from abele.codelet.schedule import StraightCode
from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    CastExpr,
    Choice,
    Compare,
    ConstExpr,
    DebugOnly,
    Element,
    Evaluate,
    For,
    Helper,
    HelperCall,
    IfStmt,
    Leave,
    Length,
    Local,
    Math,
    Print,
    Return,
    Scalar,
    Stmt,
    StoreStmt,
    VertexExpr,
    WhileStmt,
    assigned,
    own_expressions,
    walk,
)
from abele.expr import Slots
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
    hoisted: dict[Any, VertexExpr] = field(default_factory=dict)

    def is_invariant(self, expression: VertexExpr) -> bool:
        """True if ``expression`` has one value throughout the loop."""
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
        made: Operation that made each local variable set in it.
        known: Operation that made each expression evaluated in it.
        steps: True if it uses the variable of its loop.
    """

    def __init__(self, loop: LoopContext | None) -> None:
        self.loop = loop
        self.schedule = StraightCode()
        self.made: dict[str, tuple[int, ...]] = {}
        self.known: dict[VertexExpr, tuple[int, ...]] = {}
        self.steps = False

    def value(self, e: VertexExpr) -> tuple[int, ...]:
        """Evaluate ``e``; returns the operations that whoever uses it has to wait for."""
        # A constant is an immediate operand.
        if isinstance(e, ConstExpr):
            return ()
        if isinstance(e, Local):
            self.steps |= self.loop is not None and e.name == self.loop.counter
            return self.made.get(e.name, ())
        # Evaluated before the loop, so inside it there is nothing to wait for.
        if self.loop is not None and self.loop.is_invariant(e):
            self.loop.hoisted.setdefault(_structure(e), e)
            return ()
        if e not in self.known:
            self.known[e] = self._evaluate(e)
        return self.known[e]

    def all(self, expressions: Iterable[VertexExpr]) -> tuple[int, ...]:
        """Evaluate several expressions."""
        return tuple(dict.fromkeys(n for e in expressions for n in self.value(e)))

    def _evaluate(self, e: VertexExpr) -> tuple[int, ...]:
        if isinstance(e, CastExpr):
            cost = _cast_cost(e)
            # A conversion that needs no instruction is as ready as its argument.
            return self.value(e.arg) if cost is None else (self.schedule.place(cost, self.value(e.arg)),)
        if isinstance(e, HelperCall):
            return self.all(e.parts)
        if isinstance(e, Math) and e.function == "fma":
            addend = self.value(e.args[2])
            # There is no fused instruction for scalars: a product, then a sum that waits for it.
            product = self.schedule.place(slots.AUX, self.all(e.args[:2]))
            return (self.schedule.place(slots.AUX, (product, *addend)),)
        if isinstance(e, Element):
            return (self.schedule.place(slots.LOAD, self.address(e.index)),)
        if isinstance(e, Length):
            return (self.schedule.place(slots.LOAD, () if e.row is None else self.address((e.row,))),)
        return (self.schedule.place(_cost(e), self.all(e.parts)),)

    def address(self, index: tuple[VertexExpr, ...]) -> tuple[int, ...]:
        """The address of an element; where it moves by a constant with the loop variable, the loop steps it."""
        return tuple(n for i in index for n in (self._stepped() if self._steps(i) else self.value(i)))

    def _stepped(self) -> tuple[int, ...]:
        self.steps = True
        return ()

    def _steps(self, index: VertexExpr) -> bool:
        """True if ``index`` is the loop variable times an invariant, plus an invariant."""
        loop = self.loop
        if loop is None or not loop.counter:
            return False
        if isinstance(index, Local):
            return index.name == loop.counter
        if not isinstance(index, BinaryExpr) or index.op not in ("add", "sub", "mul"):
            return False
        sides = (index.left, index.right)
        fixed = [s for s in sides if loop.is_invariant(s)]
        # Linear in the variable by induction: a linear side joined to an invariant one stays linear.
        return len(fixed) == 1 and self._steps(next(s for s in sides if s is not fixed[0]))

    def simple(self, statement: Stmt) -> None:
        """A statement without statements inside."""
        match statement:
            case Assign():
                self.made[statement.name] = self.value(statement.value)
                # Stores are of whole words; a part of one is loaded, merged and stored.
            case StoreStmt():
                small = statement.field.type.bits < 32
                needs = self.value(statement.value) + self.address(statement.index)
                self.schedule.place(slots.STORE_PART if small else slots.STORE, needs)
            case Leave():
                self.schedule.place(slots.BRANCH)
            case Evaluate() | Return():
                self.all(own_expressions(statement))
            case Print():
                self.schedule.place(slots.PRINT, self.all(own_expressions(statement)))
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

    def block(self, body: list[Stmt], loop: LoopContext | None) -> tuple[Segment | None, bool]:
        """Slots ``body``; returns its only segment, or None where control flow splits it, and whether any uses the
        variable of the loop."""
        segment, first, split, steps = Segment(loop), None, False, False
        for statement in body:
            first = first or statement
            self._helpers_of(statement)
            if not isinstance(statement, IfStmt | WhileStmt | For):
                segment.simple(statement)
                continue
            split = True
            steps |= self._control(statement, segment, loop) | segment.steps
            self._close(first, segment)
            segment, first = Segment(loop), None
        if split:
            self._close(first, segment)
        return None if split else segment, steps or segment.steps

    def straight(self, body: list[Stmt], loop: LoopContext | None) -> bool:
        """Slots ``body`` where it shares bundles with nothing else; returns whether it uses the loop variable."""
        segment, steps = self.block(body, loop)
        if segment is not None and body:
            self._close(body[0], segment)
        return steps

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

    def _control(self, statement: Stmt, segment: Segment, loop: LoopContext | None) -> bool:
        match statement:
            case IfStmt():
                segment.schedule.place(slots.BRANCH, segment.value(statement.condition))
                return self._branches(statement, loop)
            case For():
                self._for(statement, segment)
            case WhileStmt():
                self._while(statement, segment)
        return False

    def _branches(self, statement: IfStmt, loop: LoopContext | None) -> bool:
        steps = [self.straight(body, loop) for body in (statement.then, statement.otherwise)]
        if statement.then and statement.otherwise:  # the jump over the other branch
            first = statement.then[0]
            self.charges.before[first] = self.charges.before.get(first, 0) + slots.BRANCH.main
            self.code_bytes += slots.INSTRUCTION_BYTES
        return any(steps)

    def _for(self, statement: For, outer: Segment) -> None:
        loop = LoopContext(assigned([statement]), stored_fields(statement.body), statement.name)
        # A body without branches is one stretch, whose bundles also take the step and the branch back; otherwise these
        # have a stretch of their own.
        segment, steps = self.block(statement.body, loop)
        end = segment or Segment(None)  # stepping and branching share the bundles of a body without branches
        if steps:
            end.schedule.place(slots.LOOP_STEP)
        end.schedule.branches = True
        self.charges.iteration[statement] = end.schedule.length
        self.code_bytes += end.schedule.code_bytes
        # Hoisted expressions are evaluated in the code around, which may hoist them further.
        for expression in loop.hoisted.values():
            outer.value(expression)
        needs = outer.all((statement.start, statement.stop))
        if not isinstance(statement.start, ConstExpr):
            # The hardware counts down from a number of turns: a start other than a constant is subtracted first.
            needs = (outer.schedule.place(slots.MAIN, needs),)
        outer.schedule.place(Slots(main=slots.LOOP_SETUP), needs)

    def _while(self, statement: WhileStmt, outer: Segment) -> None:
        loop = LoopContext(assigned([statement]), stored_fields(statement.body))
        self.straight(statement.body, loop)
        test = Segment(loop)
        test.schedule.place(slots.BRANCH, test.value(statement.condition))
        self.charges.iteration[statement] = test.schedule.length
        self.code_bytes += test.schedule.code_bytes
        # As in `for`; the test is before the body, once more than the body runs.
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
    found = {s.field.name for s in walk(body) if isinstance(s, StoreStmt)}
    for statement in walk(body):
        for expression in own_expressions(statement):
            for part in expression.walk():
                if isinstance(part, HelperCall):
                    found |= stored_fields(part.helper.body)
    return found


def _cost(e: VertexExpr) -> Slots:
    """The operation of an expression, without what is inside."""
    match e:
        case Scalar():
            return slots.LOAD
        case Math():
            return slots.of_function(e.function)
        case Choice():
            return slots.SELECT
        case Compare() if e.left.type.is_float:
            return slots.FLOAT_COMPARE
        case BinaryExpr():
            return _binary_cost(e)
    return slots.AUX if e.type.is_float else slots.MAIN


def _cast_cost(e: CastExpr) -> Slots | None:
    """The operation of a conversion; None if it needs none."""
    have, wanted = e.arg.type, e.type
    if have.is_float and wanted.is_float:
        return slots.FLOAT_TO_FLOAT
    if have.is_float:
        return slots.FLOAT_TO_INT
    if wanted.is_float:
        return slots.INT_TO_FLOAT
    return slots.MAIN if wanted.bits < min(have.bits, 32) and have != bool_ else None


def _binary_cost(e: BinaryExpr) -> Slots:
    if e.type.is_float:
        return slots.FLOAT_DIVIDE if e.op == "div" else slots.AUX
    if e.op in ("floordiv", "mod") and not _is_power_of_two(e.right):
        return slots.DIVIDE if e.op == "floordiv" else slots.REMAINDER
    return slots.MAIN


def _is_power_of_two(e: VertexExpr) -> bool:
    return isinstance(e, ConstExpr) and int(e.value) > 0 and int(e.value) & (int(e.value) - 1) == 0


def _structure(e: VertexExpr) -> Any:
    """What is equal for two expressions that read the same."""
    own = tuple(
        (k, v if not isinstance(v, VertexExpr | tuple) else None)
        for k, v in vars(e).items()
        if k not in ("line",) and not isinstance(v, VertexExpr)
    )
    return type(e), own, tuple(_structure(p) for p in e.parts)
