"""Counting without running: the part of a codelet that decides how often its loops run, and nothing else.

Where that part reads no data, its code gives the slots of a vertex from lengths and state alone, and LLVM folds its
loops to closed form. Where it does, slots have to be counted while the vertex runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from abele.codelet.code import BodyEmitter, Charges, LoopIds
from abele.codelet.costs import stored_fields
from abele.codelet.early_exits import MOST_SLOTS
from abele.codelet.memory import VertexMemory
from abele.codelet.tree import (
    Assign,
    DebugOnly,
    Element,
    Evaluate,
    For,
    Helper,
    HelperCall,
    IfStmt,
    Leave,
    Print,
    Return,
    Scalar,
    Stmt,
    StoreStmt,
    VertexExpr,
    WhileStmt,
    blocks,
    mentioned,
    own_expressions,
    walk,
)
from abele.llvm import ir as ll
from abele.llvm.emit import I64, Value, constant


@dataclass
class Control:
    """Variables and results that decide the statements to run.

    Attributes:
        variables: Local variables that matter, by function.
        results: Helpers whose result matters.
        data_dependent: True if data of edges, or state that changes, matters.
    """

    variables: dict[Helper, set[str]] = field(default_factory=dict)
    results: set[Helper] = field(default_factory=set)
    data_dependent: bool = False

    @property
    def size(self) -> int:
        """Number of variables and results found so far."""
        return len(self.results) + sum(map(len, self.variables.values()))

    def deciding(self, function: Helper) -> Iterator[VertexExpr]:
        """Expressions of ``function`` that decide the count."""
        for statement in walk(function.body):
            yield from self._of(statement, function)
            for call in calls(own_expressions(statement)):
                yield from (a for _, a in self.arguments(call))

    def _of(self, statement: Stmt, function: Helper) -> tuple[VertexExpr, ...]:
        match statement:
            case IfStmt() | WhileStmt():
                return (statement.condition,)
            case For():
                return (statement.start, statement.stop)
            case Assign() if statement.name in self.variables[function]:
                return (statement.value,)
            case Return() if statement.value is not None and function in self.results:
                return (statement.value,)
        return ()

    def arguments(self, call: HelperCall) -> Iterator[tuple[str, VertexExpr]]:
        """Parameters of a called helper that decide the count, and their arguments."""
        needed = self.variables[call.helper]
        return ((n, a) for n, a in zip(call.helper.parameters, call.args, strict=True) if n in needed)


def control_of(function: Helper) -> Control:
    """Variables and results that decide a codelet's statements to run, followed to the least closed set."""
    functions = list(dict.fromkeys(_functions(function)))
    control = Control({f: set() for f in functions})
    before = -1
    # What matters only grows, and is bounded by the code's variables and helpers: the loop ends at the least set that
    # is closed.
    while control.size != before:
        before = control.size
        for one in functions:
            for expression in list(control.deciding(one)):
                control.variables[one] |= mentioned(expression)
                control.results |= {c.helper for c in calls((expression,))}
    changing = stored_fields(function.body)
    parts = (p for f in functions for e in control.deciding(f) for p in e.walk())
    control.data_dependent = any(_reads_data(p, changing) for p in parts)
    return control


def calls(expressions: Iterable[VertexExpr]) -> Iterator[HelperCall]:
    """Calls of helpers inside expressions."""
    return (p for e in expressions for p in e.walk() if isinstance(p, HelperCall))


def _functions(function: Helper) -> Iterator[Helper]:
    yield function
    for statement in walk(function.body):
        for call in calls(own_expressions(statement)):
            yield from _functions(call.helper)


def _reads_data(part: VertexExpr, changing: set[str]) -> bool:
    return isinstance(part, Element | Scalar) and (part.field.is_edge or part.field.name in changing)


class CountCode(BodyEmitter):
    """Emits the count of one vertex: conditions, loop bounds and their operands; a loop of equal iterations becomes a
    product.
    """

    reads_data = False

    def __init__(
        self,
        builder: ll.IRBuilder,
        memory: VertexMemory,
        charges: Charges,
        counter: Value,
        function: Helper,
        control: Control,
    ) -> None:
        super().__init__(builder, memory, LoopIds(), charges, counter)
        self.function = function
        self.control = control
        self._current = function

    def run(self, worker: Value | None) -> None:
        """Count one vertex, or one worker of it."""
        self.body(self.function, {} if worker is None else {self.function.parameters[0]: worker})

    def body(self, function: Helper, arguments: dict[str, Value]) -> None:
        """The count of a function."""
        before, self._current = self._current, function
        super().body(function, arguments)
        self._current = before

    def statement(self, statement: Stmt) -> None:
        """The count of one statement."""
        match statement:
            case For() if self._fixed(statement.body) is not None:
                self._product(statement)
            case Assign() if statement.name not in self.control.variables[self._current]:
                self._calls(own_expressions(statement))
            case StoreStmt() | Evaluate() | Print() | DebugOnly():
                self._calls(own_expressions(statement))
            case For():
                self._plain(statement)
            case Return() if self._current not in self.control.results:
                self._calls(own_expressions(statement))
                super().statement(Return(line=statement.line))
            case _:
                super().statement(statement)

    def _may_stop(self, statement: WhileStmt, after: ll.Block) -> None:
        assert self.counter is not None
        many = self.builder.icmp_signed(">", self.builder.load(self.counter, typ=I64), constant(I64, MOST_SLOTS))
        on = self.builder.append_basic_block("on")
        self.builder.cbranch(many, after, on)
        self.builder.position_at_end(on)

    def _plain(self, statement: For) -> None:
        start, stop = self.value(statement.start), self.value(statement.stop)
        self.counted(start, stop, statement.step, lambda i, loop: self._with(statement, i, loop))

    def _product(self, statement: For) -> None:
        assert self.charges is not None
        assert self.counter is not None
        each = (self._fixed(statement.body) or 0) + self.charges.iteration.get(statement, 0)
        times = self.iterations(statement, self.value(statement.start), self.value(statement.stop))
        slots = self.builder.mul(times, constant(I64, each))
        self.builder.store(self.builder.add(self.builder.load(self.counter, typ=I64), slots), self.counter)

    def _fixed(self, body: list[Stmt]) -> int | None:
        """Slots of ``body`` when they are constant and it sets no deciding variable."""
        assert self.charges is not None
        relevant = self.control.variables[self._current]
        for statement in body:
            if blocks(statement) or isinstance(statement, Leave | Return):
                return None
            if isinstance(statement, Assign) and statement.name in relevant:
                return None
            if any(calls(own_expressions(statement))):
                return None
        return sum(self.charges.before.get(s, 0) for s in body)

    def _calls(self, expressions: Iterable[VertexExpr]) -> None:
        """Count the helpers that expressions call."""
        for call in calls(expressions):
            values = {name: self.value(argument) for name, argument in self.control.arguments(call)}
            self.body(call.helper, values)
