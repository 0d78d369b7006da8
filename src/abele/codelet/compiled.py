"""Compiled codelets: native functions that run vertices and that count their issue slots."""

from __future__ import annotations

import ctypes
import hashlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from abele.codelet import driver
from abele.codelet.code import BodyEmitter, Charges, LoopIds
from abele.codelet.costs import Counting, count, stored_fields
from abele.codelet.driver import WORDS, Violation
from abele.codelet.early_exits import MOST_SLOTS, EndedVertex, EndPlace, ask_to_end, endless_loops, take_end
from abele.codelet.functions import VertexFunction, code_key, emission_key
from abele.codelet.memory import VertexMemory
from abele.codelet.printing import prints_of
from abele.codelet.rounding import Rounding
from abele.codelet.scope import MISSING, is_setting, meaning, outer_name, setting_parts
from abele.codelet.sizes import UNKNOWN, Sizes
from abele.codelet.statements import read_compute
from abele.codelet.stored import StoredCode
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
from abele.codelet.vertex import CodeletDef
from abele.codelet.written import WrittenCode
from abele.errors import ApplicationRuntimeError, CodeletAccessError, CodeletError
from abele.llvm import ir as ll
from abele.llvm.cache import load_object, store_object
from abele.llvm.emit import I64, Value, constant
from abele.llvm.jit import Native, compile_keyed
from abele.numerics import ElementType

# Counting without running: the part of a codelet that decides how often its loops run, and nothing else.
#
# Where that part reads no data, its code gives the slots of a vertex from lengths and state alone, and LLVM folds its
# loops to closed form. Where it does, slots have to be counted while the vertex runs.


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


class CompiledCodelet:
    """Native code of a codelet. Every part is made on first use, and kept on disk.

    Attributes:
        definition: The codelet.
        guard: True if accesses are checked.
    """

    guard = driver.Guard.NONE

    def __init__(self, definition: CodeletDef) -> None:
        self.definition = definition
        self._key = content_key(definition)
        self._ending: list[tuple[Native, tuple[EndPlace, ...]]] = []

    @cached_property
    def run(self) -> int:
        """Address of ``void run(i64 begin, i64 end, void** tables)``: runs vertices ``begin`` to ``end``."""
        return self._native("run", self._value_text).address("run")

    @cached_property
    def run_aliasing(self) -> int:
        """As :attr:`run`, for vertices with fields that overlap one another; slower."""
        make = partial(self._value_text, aliasing=True)
        return self._native("run_aliasing", make).address("run")

    def run_sized(self, sizes: Sizes) -> int:
        """As :attr:`run`, made for vertices that have these sizes in common; quicker where they are small."""
        make = partial(self._value_text, sizes=sizes)
        return self._native(f"run {sizes}", make).address("run")

    @property
    def run_stochastic(self) -> int | None:
        """Address of ``void run(i64 begin, i64 end, void** tables, i64 seed)``: as :attr:`run_aliasing`, but results in
        narrow floats are rounded up or down with the odds that keep their mean; see ``rounding``. None where there is
        no such code."""
        return self.run_rounded(Rounding(is_random=True))

    def run_rounded(self, rounding: Rounding) -> int:
        """As :attr:`run_aliasing`, with results in narrow floats rounded in another way; as :attr:`run_stochastic`
        where that draws random numbers."""
        return self._native(f"run {rounding}", partial(self._rounded_text, rounding)).address("run")

    @cached_property
    def run_checked(self) -> int:
        """Address of ``void run_checked(i64 begin, i64 end, void** tables, i64* report)``: as :attr:`run_aliasing`, but
        an index outside a field touches nothing, and the first is reported: ``checked.Violation`` reads the report."""
        make = partial(driver.checked_module, self.definition, self.tree)
        return self._native("run_checked", make).address("run_checked")

    @property
    def run_worker(self) -> int:
        """Address of ``void run_worker(i64 begin, i64 end, void** tables, i64 worker)``, in C++ codelets.

        Raises:
            CodeletError: The codelet is in Python, whose workers run one by one as plain Python.
        """
        raise CodeletError(f"workers of {self.definition.name} do not run alone", at=self.definition.location)

    @property
    def run_worker_checked(self) -> int:
        """As :attr:`run_checked` for the worker whose number is in word 4 of the report.

        Raises:
            CodeletError: As :attr:`run_worker`.
        """
        return self.run_worker

    def access_error(self, words: Sequence[int]) -> tuple[int, CodeletAccessError | ApplicationRuntimeError] | None:
        """The vertex of the first access outside a field that checked code reported, and the error, where native code
        knows the line; None for codelets that are run again as plain Python to find it."""
        return None

    @cached_property
    def run_counted(self) -> int:
        """Address of ``void run_counted(i64 begin, i64 end, void** tables, i64* out)``: runs vertices and adds the
        cost of vertex i to ``out[i]``."""
        return self._native("run_counted", self._counted_text).address("run_counted")

    @cached_property
    def slots(self) -> int | None:
        """Address of ``void slots(i64 begin, i64 end, void** tables, i64* out)``: sets ``out[i]`` to the cost of vertex
        i from lengths and state alone; None when it depends on data."""
        return None if self.data_dependent else self._counts.address("slots")

    @cached_property
    def data_dependent(self) -> bool:
        """True if the cost of a vertex depends on the data of its edges."""
        return bool(ctypes.c_int64.from_address(self._counts.address("data_dependent")).value)

    @cached_property
    def code_bytes(self) -> int:
        """Estimated size of the codelet's code on the tile. Kept on disk: a known codelet is not even read for it."""
        return _kept(f"code_bytes\n{self._key}", self._code_bytes)

    @cached_property
    def tree(self) -> Helper:
        """The codelet, read.

        Raises:
            CodeletError: Something in it is outside the vertex language.
        """
        source = self.definition.source
        return source.tree if isinstance(source, StoredCode | WrittenCode) else read_compute(self.definition)

    @cached_property
    def prints(self) -> tuple[Print, ...]:
        """Its prints. A codelet that has some takes one more column, a ``PrintSink``'s. Whether it has any is kept on
        disk: a known codelet that prints nothing is not even read for it."""
        if self.definition.language == "cpp":
            return ()
        some = _kept(f"prints\n{self._key}", lambda: len(prints_of(self.tree)))
        return prints_of(self.tree) if some else ()

    @cached_property
    def end_places(self) -> tuple[EndPlace, ...]:
        """Places where a vertex may end before its time: loops that need not end. Whether there are any is kept on
        disk: a known codelet without is not even read for it."""
        if not _kept(f"loops\n{self._key}", lambda: len(endless_loops(self.tree))):
            return ()
        file = self.definition.file
        return tuple(EndPlace(f"{file}:{loop.line}") for loop in endless_loops(self.tree))

    def take_end(self) -> EndedVertex | None:
        """First end of a vertex before its time since the last call of this."""
        # All are asked: an end that is not taken now would be taken for one of the next run.
        found = [(take_end(native), places) for native, places in self._ending]
        return next((EndedVertex(end[0], places[end[1]]) for end, places in found if end is not None), None)

    def ask_to_end(self, asked: bool) -> None:
        """Let loops end that need not, from now on or no longer."""
        for native, _ in self._ending:
            ask_to_end(native, asked)

    @cached_property
    def counting(self) -> Counting:
        """Costs of its stretches of code."""
        return count(self.tree, sum(f.is_edge for f in self.definition.fields))

    @cached_property
    def control(self) -> Control:
        """Variables and results that decide the stretches to run."""
        return control_of(self.tree)

    def _code_bytes(self) -> int:
        return self.counting.code_bytes

    @cached_property
    def _counts(self) -> Native:
        return self._native("slots", self._slots_text)

    def _value_text(self, *, aliasing: bool = False, sizes: Sizes = UNKNOWN) -> str:
        return driver.value_module(self.definition, self.tree, aliasing=aliasing, sizes=sizes, guard=self.guard)

    def _rounded_text(self, rounding: Rounding) -> str:
        return driver.value_module(self.definition, self.tree, aliasing=True, guard=self.guard, rounding=rounding)

    def _counted_text(self) -> str:
        return driver.counted_module(self.definition, self.tree, self.counting.charges, self.guard)

    def _slots_text(self) -> str:
        control = self.control
        facts = {"data_dependent": int(control.data_dependent)}

        def body(builder: Any, memory: Any, counter: Any) -> CountCode:
            return CountCode(builder, memory, self.counting.charges, counter, self.tree, control)

        return driver.slots_module(self.definition, None if control.data_dependent else body, facts, self.guard)

    def _native(self, part: str, make: Callable[[], str]) -> Native:
        native = compile_keyed(f"{part}\n{self._key}", make)
        places = self._places(part)
        if places and all(known is not native for known, _ in self._ending):
            self._ending.append((native, places))
        return native

    def _places(self, part: str) -> tuple[EndPlace, ...]:
        """Places where vertices may end in one part of the code, by their numbers there."""
        return self.end_places if part.startswith("run") else ()


class GuardedCodelet(CompiledCodelet):
    """Native code of a codelet that is not trusted: no index touches memory outside its fields."""

    guard = driver.Guard.GLOBAL

    def __init__(self, definition: CodeletDef) -> None:
        super().__init__(definition)
        self._key += " guarded"
        self._loaded: list[Native] = []

    @property
    def run_aliasing(self) -> int:
        """The same as :attr:`run`, which makes no assumptions."""
        return self.run

    def run_sized(self, sizes: Sizes) -> int:
        """The same as :attr:`run`."""
        return self.run

    def take_violation(self) -> Violation | None:
        """First access outside a field since the last call of this."""
        for native in self._loaded:
            words = (ctypes.c_int64 * WORDS).from_address(native.address(driver.VIOLATION))
            found = Violation.of(words)
            if found is not None:
                words[:] = [0] * WORDS
                return found
        return None

    def _native(self, part: str, make: Callable[[], str]) -> Native:
        native = super()._native(part, make)
        if part.startswith("run") and part != "run_checked" and native not in self._loaded:
            self._loaded.append(native)
        return native


_compiled: weakref.WeakKeyDictionary[CodeletDef, CompiledCodelet] = weakref.WeakKeyDictionary()


def compile_codelet(definition: CodeletDef) -> CompiledCodelet:
    """Native code of a codelet; codelets of the same content share it.

    Code is made when one of its addresses is asked for, so errors in the codelet appear then.
    """
    if definition not in _compiled:
        _compiled[definition] = _of_language(definition)
    return _compiled[definition]


def _of_language(definition: CodeletDef) -> CompiledCodelet:
    if definition.language == "cpp":
        from abele.codelet.cpp.compiled import CompiledCppCodelet

        return CompiledCppCodelet(definition)
    guarded = isinstance(definition.source, StoredCode) and not definition.source.trusted
    return GuardedCodelet(definition) if guarded else CompiledCodelet(definition)


def _kept(content: str, make: Callable[[], int]) -> int:
    """The number that ``make`` returns for ``content``, from the disk cache if it is known there."""
    key = hashlib.sha256(content.encode()).hexdigest()
    known = load_object(key)
    if known is not None:
        return int(known)
    number = make()
    store_object(key, str(number).encode())
    return number


_NOT_IN_CODE = ("compute", "cycles", "state_bytes", "codelet")
"""Attributes of a class on which its native code does not depend."""


def content_key(definition: CodeletDef) -> str:
    """Everything that the native code of a codelet depends on, apart from LLVM and the host, as text."""
    fields = [(f.name, f.direction, f.type.name, f.rank, f.layouts) for f in definition.fields]
    if isinstance(definition.source, StoredCode):
        return f"{_fingerprint()} stored {definition.kind} {fields} {definition.source.key}"
    if isinstance(definition.source, WrittenCode):
        return f"{_fingerprint()} written {definition.kind} {fields} {definition.source.key}"
    assert definition.compute is not None
    attributes = {n: v for n, v in definition.attributes.items() if n not in _NOT_IN_CODE}
    functions: dict[FunctionType, str] = {}
    body = _function_key(definition.compute, functions)
    members = sorted((n, _object_key(v, functions)) for n, v in attributes.items())
    return f"{_fingerprint()} {sys.version_info[:2]} {definition.kind} {fields} {members} {body}"


def _function_key(function: FunctionType, seen: dict[FunctionType, str]) -> str:
    if function in seen:
        return seen[function]
    seen[function] = f"function {len(seen)}"
    code = function.__code__
    names = dict.fromkeys((*code.co_names, *code.co_freevars))
    outer = [(n, _object_key(outer_name(function, n), seen)) for n in names]
    return f"{seen[function]} {code_key(code)} {outer}"


def _object_key(value: Any, seen: dict[FunctionType, str]) -> str:
    if value is MISSING:
        return ""
    if isinstance(value, staticmethod):
        value = value.__func__
    known = meaning(value)
    if isinstance(known, FunctionType):
        return _function_key(known, seen)
    if isinstance(known, ModuleType):
        return f"module {known.__name__}"
    if isinstance(known, VertexFunction):
        return f"{known!r}{emission_key(known.name)}"
    if is_setting(known) and not isinstance(known, ElementType):
        parts = [] if isinstance(known, Enum) else [(n, _object_key(v, seen)) for n, v in setting_parts(known).items()]
        return f"{type(known).__qualname__} {known if isinstance(known, str | Enum) else ''!s} {parts}"
    return repr(known) if isinstance(known, bool | int | float | ElementType) else ""


@cache
def _fingerprint() -> str:
    """A digest of the compiler itself, so that no code made by another version of it is ever used."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for folder in ("codelet/*.py", "expr/**/*.py", "llvm/*.py", "numerics/*.py"):
        for file in sorted(here.parent.glob(folder)):
            digest.update(file.read_bytes())
    return digest.hexdigest()
