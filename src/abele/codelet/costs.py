"""Counting issue slots: cost of every stretch of straight-line code and every loop iteration of a codelet.

The count follows the code that a scalar compiler would make, structure by structure: each instruction takes a slot
(:mod:`~abele.codelet.costs`), equal expressions and constants of one stretch are evaluated once, invariant
expressions are hoisted out of the innermost loop, and addresses that move linearly with the loop variable are stepped
by loads, stores or the loop. Stretches end where control flow splits. The result is a number of slots for each place in
the code (``Charges``), which the counting function adds up along the way that data or lengths take: so costs are exact
for this model, for any trip counts, without running the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.codelet import slots
from abele.codelet.code import Charges
from abele.codelet.fields import FieldDef
from abele.codelet.slots import INSTRUCTION_BYTES
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
from abele.machine.source import Cited, calibrated
from abele.numerics import bool_, f16

# Slots of straight-line code: one for each instruction, in the order of the source.
#
# A worker could issue an instruction on each pipe at once. Compiled code hardly does: a blur with nine loads, eleven
# or twelve arithmetic instructions and a store took 24 to 30 slots per vector on silicon, where pairs would leave 15.
# The one pair that measurements show is at the end of a loop: the branch back is issued beside floating point that
# comes right before it (a dot product takes four slots per element), and alone after anything on its own pipe (the
# STREAM triad, which stores last, takes six). ``docs/decisions/0027-one-instruction-per-slot.md`` has the
# measurements, and what else was tried.


def calibrations() -> Iterator[tuple[str, Cited]]:
    """Rule of bundles, with its measurements."""
    on = [f"blur: {variant}, 1 IPU: {of}" for variant in ("half4", "float2", "float") for of in ("compute", "step")]
    text = "a blur takes 24 to 30 slots per vector, one for each instruction; a dot product's branch is beside its sum"
    cited = calibrated(1, text, on=(*on, "matvec: compute, codelets as counted"))
    yield "codelet.straight_code: instructions per slot", cited


@dataclass
class StraightCode:
    """Instructions of straight-line code.

    Attributes:
        branches: True if a loop's branch back ends it.
        num_instructions: Instructions, the branch not among them; a long operation is one, a call.
    """

    branches: bool = False
    num_instructions: int = 0
    _slots: int = 0
    _last: str = "main"

    def place(self, cost: Slots) -> None:
        """Add an operation. Of one that uses both pipes, the part on the pipe named in ``cost.first`` comes first."""
        parts = [("main", cost.main), ("aux", cost.aux)]
        for pipe, taken in parts if cost.first == "main" else reversed(parts):
            if taken:
                self._slots += taken
                self.num_instructions += 1
                self._last = pipe

    def step(self, cost: Slots) -> None:
        """Add slots that may stand anywhere in the code, such as the step of an index: the last instruction stays the
        last.
        """
        last = self._last
        self.place(cost)
        self._last = last

    @property
    def length(self) -> int:
        """Slots from the first instruction to the last."""
        return self._slots + (self.branches and self._last != "aux")

    @property
    def code_bytes(self) -> int:
        """Size of the code; a bundle is as long as its two instructions."""
        return (self.num_instructions + self.branches) * INSTRUCTION_BYTES


@dataclass(frozen=True)
class ExpressionForm:
    """Structure of an expression, for telling equal ones.

    Attributes:
        number: Equal for expressions that read the same.
        varies: True if it may have another value each time, even of the same variables.
        locals: Local variables that it reads.
        fields: Names of the fields that it reads elements of.
    """

    number: int
    varies: bool
    locals: frozenset[str]
    fields: frozenset[str]


class ExpressionForms:
    """Forms of the expressions of a codelet, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[int, ExpressionForm] = {}
        self._numbers: dict[Any, int] = {}

    def of(self, e: VertexExpr) -> ExpressionForm:
        """The form of ``e``."""
        found = self._known.get(id(e))
        if found is None:
            found = self._known[id(e)] = self._form(e)
        return found

    def _form(self, e: VertexExpr) -> ExpressionForm:
        parts = [self.of(part) for part in e.parts]
        own = tuple(v for k, v in vars(e).items() if k != "line" and not isinstance(v, VertexExpr | tuple))
        key = type(e), own, tuple(p.number for p in parts)
        names, fields = {e.name} if isinstance(e, Local) else set(), set()
        if isinstance(e, Element | Scalar):
            fields.add(e.field.name)
        return ExpressionForm(
            self._numbers.setdefault(key, len(self._numbers)),
            isinstance(e, HelperCall) or _is_random(e) or any(p.varies for p in parts),
            frozenset(names.union(*(p.locals for p in parts))),
            frozenset(fields.union(*(p.fields for p in parts))),
        )


@dataclass
class LoopContext:
    """The innermost loop around code.

    Attributes:
        variables: Local variables that change in it.
        stored: Names of fields that it writes.
        counter: Loop variable, by which addresses are stepped.
        hoisted: Expressions that do not change in it, by number; they are evaluated once, before it.
        places: Places of each row that an iteration touches, by field and row.
        computes: True if it computes with its variable.
    """

    variables: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    counter: str = ""
    hoisted: dict[int, VertexExpr] = field(default_factory=dict)
    places: dict[Any, set[int]] = field(default_factory=dict)
    computes: bool = False

    @property
    def steps(self) -> bool:
        """True if an instruction steps its variable: loads and stores step addresses of rows touched at one place."""
        return self.computes or any(len(p) > 1 for p in self.places.values())

    def is_invariant(self, form: ExpressionForm) -> bool:
        """True if an expression has one value throughout the loop."""
        return not (form.varies or form.locals & self.variables or form.fields & self.stored)


class Segment:
    """Straight-line code being costed.

    Attributes:
        code: Its instructions.
        known: Numbers of the expressions evaluated in it whose values still hold.
        words: Constants made in it.
    """

    def __init__(self, loop: LoopContext | None, forms: ExpressionForms) -> None:
        self.loop = loop
        self.forms = forms
        self.code = StraightCode()
        self.known: set[int] = set()
        self._readers: dict[str, list[int]] = {}
        self.words: set[int] = set()

    def value(self, e: VertexExpr) -> None:
        """Evaluate ``e``."""
        if isinstance(e, ConstExpr):
            self._constant(e)
        elif isinstance(e, Local):
            if self.loop is not None and e.name == self.loop.counter:
                self.loop.computes = True
        else:
            self._once(e, self.forms.of(e))

    def _once(self, e: VertexExpr, form: ExpressionForm) -> None:
        if self.loop is not None and self.loop.is_invariant(form):
            self.loop.hoisted.setdefault(form.number, e)  # evaluated before the loop
        elif form.varies:
            self._evaluate(e)
        elif form.number not in self.known:
            self._evaluate(e)
            self.known.add(form.number)
            for name in (*form.locals, *map(_of_field, form.fields)):
                self._readers.setdefault(name, []).append(form.number)

    def _changed(self, what: str) -> None:
        """Forget expressions of a variable or field that changes."""
        self.known.difference_update(self._readers.pop(what, ()))

    def all(self, expressions: Iterable[VertexExpr]) -> None:
        """Evaluate several expressions."""
        for expression in expressions:
            self.value(expression)

    def _constant(self, e: ConstExpr) -> None:
        if not e.type.is_float:
            return  # an immediate operand
        word = _word(e)
        if word not in self.words:
            self.words.add(word)
            self.code.place(slots.of_constant(word))

    def _evaluate(self, e: VertexExpr) -> None:
        if _is_random(e):
            # The machine's generator takes no seed and no index.
            self.code.place(slots.RANDOM)
            self.code.place(slots.MOVE)
        elif isinstance(e, CastExpr):
            self._cast(e)
        elif isinstance(e, HelperCall):
            self.all(e.parts)
            self.known.clear()
        elif isinstance(e, Math) and e.function == "fma":
            self.all(e.args)
            # There is no fused instruction for scalars.
            self.code.place(Slots(aux=2 * slots.AUX.aux))
        elif isinstance(e, Element):
            self.address(e.field, e.index)
            self.code.place(slots.LOAD)
        elif isinstance(e, Length):
            if e.row is not None:
                self.address(e.field, (e.row,))
            self.code.place(slots.LOAD)
        else:
            self.all(e.parts)
            self.code.place(_cost(e))

    def _cast(self, e: CastExpr) -> None:
        if _is_random(e.arg) and e.type.is_float:
            # Random bits are where the conversion takes them.
            self.code.place(slots.RANDOM)
            self.code.place(slots.AUX)
            return
        self.value(e.arg)
        cost = _cast_cost(e)
        if cost is not None:
            self.code.place(cost)

    def address(self, place: FieldDef, index: tuple[VertexExpr, ...]) -> None:
        """The address of an element; where it moves by a constant with the loop variable, it is stepped."""
        for number, one in enumerate(index):
            if self.loop is not None and self._steps(one):
                others = tuple(self.forms.of(i).number for n, i in enumerate(index) if n != number)
                self.loop.places.setdefault((place.name, number, others), set()).add(self.forms.of(one).number)
            else:
                self.value(one)

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
        fixed = [s for s in sides if loop.is_invariant(self.forms.of(s))]
        # Linear in the variable by induction: a linear side joined to an invariant one stays linear.
        return len(fixed) == 1 and self._steps(next(s for s in sides if s is not fixed[0]))

    def simple(self, statement: Stmt) -> None:
        """A statement without statements inside."""
        match statement:
            case Assign():
                self.value(statement.value)
                self._changed(statement.name)
            case StoreStmt():
                self.value(statement.value)
                self.address(statement.field, statement.index)
                self.code.place(slots.of_store(statement.field.type.bits))
                self._changed(_of_field(statement.field.name))
            case Leave():
                self.code.place(slots.BRANCH)
            case Evaluate() | Return():
                self.all(own_expressions(statement))
            case Print():
                self.all(own_expressions(statement))
                self.code.place(slots.PRINT)
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
    _forms: ExpressionForms = field(default_factory=ExpressionForms, repr=False)

    def block(self, body: list[Stmt], loop: LoopContext | None) -> Segment | None:
        """Slots ``body``; returns its only segment, or None where control flow splits it."""
        segment, first, split = Segment(loop, self._forms), None, False
        for statement in body:
            first = first or statement
            self._helpers_of(statement)
            if not isinstance(statement, IfStmt | WhileStmt | For):
                segment.simple(statement)
                continue
            split = True
            self._control(statement, segment, loop)
            self._close(first, segment)
            segment, first = Segment(loop, self._forms), None
        if split:
            self._close(first, segment)
        return None if split else segment

    def straight(self, body: list[Stmt], loop: LoopContext | None) -> None:
        """Slots ``body`` where nothing else is in its stretch."""
        segment = self.block(body, loop)
        if segment is not None and body:
            self._close(body[0], segment)

    def _close(self, first: Stmt | None, segment: Segment) -> None:
        self.code_bytes += segment.code.code_bytes
        if first is not None and segment.code.length:
            before = self.charges.before.get(first, 0)
            self.charges.before[first] = before + segment.code.length

    def _helpers_of(self, statement: Stmt) -> None:
        for expression in own_expressions(statement):
            for part in expression.walk():
                if isinstance(part, HelperCall) and part.helper not in self._helpers:
                    self._helpers.add(part.helper)
                    self.straight(part.helper.body, None)

    def _control(self, statement: Stmt, segment: Segment, loop: LoopContext | None) -> None:
        match statement:
            case IfStmt():
                segment.value(statement.condition)
                segment.code.place(slots.BRANCH)
                self._branches(statement, loop)
            case For():
                self._for(statement, segment)
            case WhileStmt():
                self._while(statement, segment)

    def _branches(self, statement: IfStmt, loop: LoopContext | None) -> None:
        for body in (statement.then, statement.otherwise):
            self.straight(body, loop)
        if statement.then and statement.otherwise:  # the jump over the other branch
            first = statement.then[0]
            self.charges.before[first] = self.charges.before.get(first, 0) + slots.BRANCH.main
            self.code_bytes += slots.INSTRUCTION_BYTES

    def _for(self, statement: For, outer: Segment) -> None:
        loop = LoopContext(assigned([statement]), stored_fields(statement.body), statement.name)
        # A body without branches is one stretch, which also has the step and the branch back; otherwise these have a
        # stretch of their own.
        end = self.block(statement.body, loop) or Segment(None, self._forms)
        if loop.steps:
            end.code.step(slots.LOOP_STEP)
        end.code.branches = True
        self.charges.iteration[statement] = end.code.length
        self.code_bytes += end.code.code_bytes
        # Hoisted expressions are evaluated in the code around, which may hoist them further.
        outer.all(loop.hoisted.values())
        outer.all((statement.start, statement.stop))
        if not isinstance(statement.start, ConstExpr):
            # The hardware counts down from a number of turns: a start other than a constant is subtracted first.
            outer.code.place(slots.MAIN)
        outer.code.place(Slots(main=slots.LOOP_SETUP))

    def _while(self, statement: WhileStmt, outer: Segment) -> None:
        loop = LoopContext(assigned([statement]), stored_fields(statement.body))
        self.straight(statement.body, loop)
        test = Segment(loop, self._forms)
        test.value(statement.condition)
        test.code.place(slots.BRANCH)
        self.charges.iteration[statement] = test.code.length
        self.code_bytes += test.code.code_bytes
        # As in `for`; the test is before the body, once more than the body runs.
        outer.all(loop.hoisted.values())
        outer.value(statement.condition)
        outer.code.place(slots.BRANCH)


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
    """Slots of an expression's operation, without its arguments."""
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


def _word(e: ConstExpr) -> int:
    """The bits of a floating-point constant in a register; 8-bit floats are f16 there."""
    type_ = f16 if e.type.bits == 8 else e.type
    with np.errstate(over="ignore"):
        return int(np.array(e.value, type_.np).view(np.uint32 if type_.bits == 32 else np.uint16))


def _of_field(name: str) -> str:
    """Name of a field among names of variables."""
    return f".{name}"


def _is_random(e: VertexExpr) -> bool:
    return isinstance(e, Math) and e.function == "random_u32"


def _binary_cost(e: BinaryExpr) -> Slots:
    if e.type.is_float:
        return slots.FLOAT_DIVIDE if e.op == "div" else slots.AUX
    if e.op in ("floordiv", "mod") and not _is_power_of_two(e.right):
        return slots.DIVIDE if e.op == "floordiv" else slots.REMAINDER
    return slots.MAIN


def _is_power_of_two(e: VertexExpr) -> bool:
    return isinstance(e, ConstExpr) and int(e.value) > 0 and int(e.value) & (int(e.value) - 1) == 0
