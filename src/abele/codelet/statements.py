"""Reading statements: from the source of ``compute`` to a typed tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from abele.codelet.expressions import Origin
from abele.codelet.macro_calls import MacroExpansion, Macros, function_tree
from abele.codelet.reductions import accumulators
from abele.codelet.rules import cast, is_weak
from abele.codelet.scope import NameScope, Self, WholeField
from abele.codelet.tree import (
    Assign,
    ConstExpr,
    DebugOnly,
    Element,
    Evaluate,
    For,
    Helper,
    HelperCall,
    IfStmt,
    Leave,
    Local,
    Return,
    Scalar,
    Stmt,
    StoreStmt,
    VertexExpr,
    WhileStmt,
)
from abele.codelet.vertex import CodeletDef
from abele.numerics import ElementType, i64

_MAX_DEPTH = 16


@dataclass
class HelperReading:
    """Helper functions read so far, and those being read.

    Attributes:
        helpers: By function and what its arguments are.
        open: Names of the functions being read, outermost first.
    """

    helpers: dict[Any, Helper] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)


def read_compute(definition: CodeletDef) -> Helper:
    """The typed tree of a codelet's ``compute``.

    Raises:
        CodeletError: Something in it is outside the vertex language.
    """
    assert definition.compute is not None
    known: dict[str, Any] = {definition.compute.__code__.co_varnames[0]: Self()}
    types: dict[str, ElementType] = {}
    parameters: tuple[str, ...] = ()
    if definition.kind == "multi":
        parameters = (definition.compute.__code__.co_varnames[1],)
        types[parameters[0]] = i64
    scope = NameScope(definition.compute, types, dict.fromkeys(types, definition.line), known, set(types))
    return _read(definition, scope, parameters, HelperReading())


def _read(definition: CodeletDef, scope: NameScope, parameters: tuple[str, ...], reading: HelperReading) -> Helper:
    function = scope.function
    tree = function_tree(function.__code__)
    origin = Origin(definition.name, function.__code__.co_filename, function.__name__)
    reader = Statements(definition, origin, scope)
    reader.reading = reading
    reader.expansion = MacroExpansion(reserved=frozenset(function.__code__.co_varnames))
    body, falls_through = reader.block(tree.body)
    if reader.result is not None and falls_through:
        raise origin.problem(tree, "may end without returning a value", "return one on every path")
    return Helper(function.__name__, origin.file, parameters, scope.types, body, reader.result)


class Statements(Macros):
    """Reads the statements of one function."""

    reading: HelperReading
    result: ElementType | None = None
    _depth = 0
    _in_macro = False

    def block(self, nodes: list[ast.stmt]) -> tuple[list[Stmt], bool]:
        """Statements, and true if control can reach the code after them."""
        body: list[Stmt] = []
        for node in nodes:
            read = self.statement(node)
            body += read
            # What follows cannot run, and is not read: it need not even be in the language.
            if read and _ends(read[-1]):
                return body, False
        return body, True

    def statement(self, node: ast.stmt) -> list[Stmt]:
        """Statements of ``node``, after those of macros that it calls; none for a docstring."""
        with self.room() as before:
            read = self._statement(node)
        return [*before, *read]

    def tail(self, nodes: list[ast.stmt]) -> tuple[list[Stmt], ast.expr | None]:
        """Statements of a macro, and its value where known conditions decide."""
        body: list[Stmt] = []
        for number, node in enumerate(nodes):
            if isinstance(node, ast.Return):
                return body, node.value
            if isinstance(node, ast.If):
                with self.room():
                    condition = self.condition(node.test)
                if isinstance(condition, ConstExpr):
                    # The branch that is taken goes on with what follows the `if`, as `return` may be in either.
                    taken = node.body if condition.value else node.orelse
                    inner, returned = self.tail([*taken, *nodes[number + 1 :]])
                    return [*body, *inner], returned
            body += self.statement(node)
        return body, None

    def inside(self, origin: Origin, scope: NameScope) -> Statements:
        """A reader of a macro's code."""
        reader = Statements(self.definition, origin, scope)
        reader.reading, reader.expansion, reader._in_macro = self.reading, self.expansion, True
        return reader

    def _statement(self, node: ast.stmt) -> list[Stmt]:
        match node:
            case ast.Assign():
                return self._assign(node)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.AnnAssign() if node.value is not None:
                return self._annotated(node)
            case ast.If():
                return self._if(node)
            case ast.While():
                return self._while(node)
            case ast.For():
                return self._for(node)
            case ast.Break() | ast.Continue():
                return [Leave(how=type(node).__name__.lower(), line=node.lineno)]
            case ast.Return():
                return self._return(node)
            case ast.Expr():
                return self._expression(node)
            case ast.Pass():
                return []
            case ast.Assert():
                return [self._debug_only(node)]
        raise self.origin.problem(node, f"statement {type(node).__name__} is outside the vertex language", _hint(node))

    def _expression(self, node: ast.Expr) -> list[Stmt]:
        if isinstance(node.value, ast.Constant):
            return []
        if isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Name) and node.value.func.id == "print":
                return [self.print(node.value)]
            called = self.macro_called(node.value)
            if called is not None:
                self.macro_values(node.value, *called)
                return []
            value = self.call(node.value)
            if isinstance(value, HelperCall):
                return [Evaluate(value=value, line=node.lineno)]
        raise self.origin.problem(node, "a statement that does nothing", "assign the value, or remove it")

    def _debug_only(self, node: ast.stmt) -> Stmt:
        """Statement for debug mode; names of fields are spelled out, since it has no such names."""
        if self._in_macro:
            raise self.origin.problem(node, "an assert in a macro", "assert where the macro is called")
        text = ast.parse(ast.unparse(node)).body[0]
        return DebugOnly(source=ast.unparse(_SpelledOut(self.scope.known).visit(text)), line=node.lineno)

    def _assign(self, node: ast.Assign) -> list[Stmt]:
        if len(node.targets) != 1:
            raise self.origin.problem(node, "several targets", "assign them one after the other")
        target = node.targets[0]
        called = self.macro_called(node.value)
        if called is not None:
            return self._returned_to(node, target, *called)
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            return self._tuple(node, target, [self.value(v) for v in node.value.elts])
        found = self.resolve(node.value)
        if isinstance(target, ast.Name) and isinstance(found, WholeField):
            return self._alias(node, target.id, found)
        return [self._set(node, target, self._valued(found, node.value))]

    def _returned_to(self, node: ast.Assign, target: ast.expr, function: FunctionType, first: list[Any]) -> list[Stmt]:
        """``a, b = macro(…)``; variables that the macro returns are the targets themselves, where they can be."""
        assert isinstance(node.value, ast.Call)
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        with self.room(tuple(t.id if isinstance(t, ast.Name) else "" for t in targets)) as before:
            values = self.macro_values(node.value, function, first)
        assert self.expansion.before is not None
        self.expansion.before += before
        if isinstance(values, WholeField) and isinstance(target, ast.Name):
            return self._alias(node, target.id, values)
        found = values if isinstance(values, list) else [values]
        if None in found or len(found) != len(targets):
            count = 0 if None in found else len(found)
            raise self.origin.problem(node, f"{function.__name__} returns {count} values for {len(targets)} targets")
        valued = [self._valued(f, node.value) for f in found]
        # The macro's variables were named as the targets, so everything is where it belongs already.
        if all(_is_variable(t, v) for t, v in zip(targets, valued, strict=True)):
            return []
        if isinstance(target, ast.Tuple):
            return self._tuple(node, target, valued)
        return [self._set(node, target, valued[0])]

    def _tuple(self, node: ast.Assign, target: ast.Tuple, values: list[VertexExpr]) -> list[Stmt]:
        """``a, b = x, y``: all values first, then all targets."""
        if len(target.elts) != len(values):
            raise self.origin.problem(node, f"{len(values)} values for {len(target.elts)} targets")
        # Through temporaries, as in Python: `a, b = b, a` exchanges them.
        names = [self._temporary(v.type) for v in values]
        first: list[Stmt] = [
            Assign(name=n, value=_typed(v), line=node.lineno) for n, v in zip(names, values, strict=True)
        ]
        reads = [self.scope.local(n, node.lineno) for n in names]
        return first + [self._set(node, t, r) for t, r in zip(target.elts, reads, strict=True)]

    def _temporary(self, type_: ElementType) -> str:
        name = f"value_{self.origin.function if self._in_macro else ''}{len(self.scope.types)}_"
        self.scope.types[name] = type_
        self.scope.defined.add(name)
        return name

    def _alias(self, node: ast.Assign, name: str, found: WholeField) -> list[Stmt]:
        """A name for a whole field or row; the row's number is kept in a variable."""
        known = self.scope.known.get(name)
        again = (
            isinstance(known, WholeField) and known.field is found.field and (known.row is None) == (found.row is None)
        )
        if name in self.scope.types or (known is not None and not again):
            raise self.origin.problem(
                node, f"{name} already stands for something else", "use another name for the field"
            )
        if found.row is None:
            self.scope.known[name] = found
            return []
        # The row's number is computed where the name is bound, not where it is read: variables in it may have changed
        # by then.
        row = f"{name}_row_"
        self.scope.types[row] = i64
        self.scope.defined.add(row)
        self.scope.known[name] = WholeField(found.field, self.scope.local(row, node.lineno))
        return [Assign(name=row, value=found.row, row_of=found.field, line=node.lineno)]

    def _annotated(self, node: ast.AnnAssign) -> list[Stmt]:
        wanted = self.resolve(node.annotation)
        if not isinstance(wanted, ElementType):
            raise self.origin.problem(node, "a local annotation that is no element type", "x: f32 = …")
        assert node.value is not None
        value = self.converted(node, self.value(node.value), wanted, ast.unparse(node.target), narrowing=True)
        return [self._set(node, node.target, value)]

    def _augmented(self, node: ast.AugAssign) -> list[Stmt]:
        loaded = ast.copy_location(_as_load(node.target), node.target)
        value = self.binary(node, type(node.op), self.value(loaded), self.value(node.value), loaded, node.value)
        return [self._set(node, node.target, value)]

    def _set(self, node: ast.stmt, target: ast.expr, value: VertexExpr) -> Stmt:
        if isinstance(target, ast.Name):
            return self._set_local(node, target.id, value)
        if isinstance(target, ast.Attribute | ast.Subscript):
            place = self.resolve(_as_load(target))
            if isinstance(place, Scalar | Element):
                return self._store(node, place, value)
            if isinstance(place, WholeField):
                raise self.origin.problem(
                    node, f"{place.field.name} is set as a whole", "set one element at a time, in a loop"
                )
        raise self.origin.problem(node, "this cannot be assigned to", "assign to a local variable or a field")

    def _store(self, node: ast.stmt, place: Scalar | Element, value: VertexExpr) -> StoreStmt:
        target = place.field
        if not target.writable:
            raise self.origin.problem(
                node,
                f"field {target.name} is an Input and cannot be written",
                f"declare it InOut or Output: {target.name}",
            )
        value = self.converted(node, value, target.type, f"field {target.name}", narrowing=True)
        return StoreStmt(
            field=target, index=place.index if isinstance(place, Element) else (), value=value, line=node.lineno
        )

    def _set_local(self, node: ast.stmt, name: str, value: VertexExpr) -> Stmt:
        scope = self.scope
        if name in scope.known:
            raise self.origin.problem(node, f"{name} already stands for a field", "use another name for the value")
        if name not in scope.types:
            scope.types[name] = value.type
            scope.lines[name] = node.lineno
        else:
            since = f"{name}, set at line {scope.lines.get(name, 0)},"
            value = self.converted(node, value, scope.types[name], since, narrowing=False)
        scope.defined.add(name)
        return Assign(name=name, value=_typed(value), line=node.lineno)

    def _if(self, node: ast.If) -> list[Stmt]:
        condition = self.condition(node.test)
        if isinstance(condition, ConstExpr):
            return self.block(node.body if condition.value else node.orelse)[0]
        before = set(self.scope.defined)
        then, through = self.block(node.body)
        # A branch that leaves does not reach the end of the `if`: only what the others define counts.
        after_then = self.scope.defined if through else None
        self.scope.defined = set(before)
        otherwise, through = self.block(node.orelse)
        after_else = self.scope.defined if through else None
        reached = [d for d in (after_then, after_else) if d is not None]
        self.scope.defined = set.intersection(*reached) if reached else before
        return [IfStmt(condition=condition, then=then, otherwise=otherwise, line=node.lineno)]

    def _while(self, node: ast.While) -> list[Stmt]:
        if node.orelse:
            raise self.origin.problem(node, "else after while", "set a flag and test it after the loop")
        # The condition is evaluated before each turn, so a macro's statements, which would run once, have no place.
        with self.no_room():
            condition = self.condition(node.test)
        before = set(self.scope.defined)
        body = self._loop(node.body)
        self.scope.defined = before
        return [WhileStmt(condition=condition, body=body, line=node.lineno)]

    def _loop(self, nodes: list[ast.stmt]) -> list[Stmt]:
        self._depth += 1
        body, _ = self.block(nodes)
        self._depth -= 1
        return body

    def _for(self, node: ast.For) -> list[Stmt]:
        if node.orelse:
            raise self.origin.problem(node, "else after for", "set a flag and test it after the loop")
        if not isinstance(node.target, ast.Name):
            raise self.origin.problem(node, "a loop variable that is no plain name", "for i in range(…):")
        start, stop, step = self._range(node.iter)
        name = node.target.id
        if self.scope.types.get(name, i64) != i64 or name in self.scope.known:
            raise self.origin.problem(node, f"loop variable {name} is used for something else", "use another name")
        self.scope.types[name] = i64
        self.scope.lines.setdefault(name, node.lineno)
        before = set(self.scope.defined)
        self.scope.defined.add(name)
        body = self._loop(node.body)
        self.scope.defined = before
        # Variables that a turn only accumulates are kept in 32 lanes, joined after the loop: the language defines their
        # order so (docs/codelets.md), and code for several lanes at once gives the same bits.
        lanes = {n: op for n, op in accumulators(body).items() if n in before and n != name}
        return [For(name=name, start=start, stop=stop, step=step, body=body, lanes=lanes, line=node.lineno)]

    def _range(self, node: ast.expr) -> tuple[VertexExpr, VertexExpr, int]:
        called = self.resolve(node.func) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        if not isinstance(node, ast.Call) or getattr(called, "name", "") != "range":
            raise self.origin.problem(node, "a loop over something that is no range", "for i in range(len(self.x)):")
        if not 1 <= len(node.args) <= 3 or node.keywords:
            raise self.origin.problem(node, f"range takes 1 to 3 arguments, got {len(node.args)}")
        values = [self.index(a) for a in node.args]
        zero = ConstExpr(type=i64, value=0, line=node.lineno)
        start, stop = (zero, values[0]) if len(values) == 1 else values[:2]
        if len(values) < 3:
            return start, stop, 1
        step = values[2]
        if not isinstance(step, ConstExpr) or step.value == 0:
            raise self.origin.problem(node, "a range step that is no constant other than 0", "use a while loop")
        return start, stop, int(step.value)

    def _return(self, node: ast.Return) -> list[Stmt]:
        is_compute = self.scope.function is self.definition.compute
        if self._in_macro:
            raise self.origin.problem(
                node, "a macro returns before its end", "set a variable, and return that at the end"
            )
        if node.value is None or (is_compute and isinstance(node.value, ast.Constant)):
            return [Return(line=node.lineno)]
        if is_compute:
            raise self.origin.problem(node, "compute returns a value", "write results to Output fields")
        value = self.value(node.value)
        if self.result is None:
            self.result = value.type
        value = self.converted(node, value, self.result, f"result of {self.origin.function}", narrowing=False)
        return [Return(value=_typed(value), line=node.lineno)]

    def read_helper(self, function: FunctionType, arguments: list[Any], node: ast.Call) -> Helper:
        """Plain function, read for the types of its arguments."""
        # A helper is read once for each combination of argument types and fields, as a template would be.
        key = (function, tuple(_identity(a) for a in arguments))
        if key in self.reading.helpers:
            return self.reading.helpers[key]
        if function.__qualname__ in self.reading.open:
            raise self.origin.problem(
                node, f"{function.__name__} calls itself", "recursion needs a stack; write a loop"
            )
        code = function.__code__
        # Flags of *args and **kwargs.
        if code.co_kwonlyargcount or code.co_flags & 0x0C:
            raise self.origin.problem(node, f"{function.__name__} has keyword-only or starred parameters")
        names = code.co_varnames[: code.co_argcount]
        types = {n: a.type for n, a in zip(names, arguments, strict=True) if isinstance(a, VertexExpr)}
        known = {n: a for n, a in zip(names, arguments, strict=True) if not isinstance(a, VertexExpr)}
        scope = NameScope(function, dict(types), dict.fromkeys(types, code.co_firstlineno), known, set(types))
        self.reading.open.append(function.__qualname__)
        helper = _read(self.definition, scope, tuple(types), self.reading)
        self.reading.open.pop()
        self.reading.helpers[key] = helper
        return helper


class _SpelledOut(ast.NodeTransformer):
    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.known.get(node.id)
        if isinstance(found, Self):
            return ast.Name("self", ast.Load())
        if not isinstance(found, WholeField):
            return node
        field = f"self.{found.field.name}"
        row = f"[{found.row.name}]" if isinstance(found.row, Local) else ""
        return ast.parse(field + row, mode="eval").body


def _is_variable(target: ast.expr, value: VertexExpr) -> bool:
    """True if ``value`` is the variable that it is assigned to."""
    return isinstance(target, ast.Name) and isinstance(value, Local) and value.name == target.id


def _typed(value: VertexExpr) -> VertexExpr:
    """A number without a type of its own gets the default one."""
    return cast(value, value.type) if is_weak(value) else value


def _identity(argument: Any) -> Any:
    if isinstance(argument, VertexExpr):
        return argument.type
    return argument.field if isinstance(argument, WholeField) else "self"


def _ends(statement: Stmt) -> bool:
    """True if control never reaches the code after ``statement``."""
    if isinstance(statement, IfStmt):
        return (
            bool(statement.then and statement.otherwise)
            and _ends(statement.then[-1])
            and _ends(statement.otherwise[-1])
        )
    return isinstance(statement, Return | Leave)


def _as_load(node: ast.expr) -> ast.expr:
    """The same expression, read instead of written."""
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Attribute(node.value, node.attr, ast.Load()), node)
    if isinstance(node, ast.Subscript):
        return ast.copy_location(ast.Subscript(node.value, node.slice, ast.Load()), node)
    return node


def _hint(node: ast.stmt) -> str:
    hints = {
        "Try": "a vertex cannot raise or catch",
        "Raise": "a vertex cannot raise; assert is checked in debug mode",
        "With": "call what it does directly",
        "Import": "import at the top of the file",
        "ImportFrom": "import at the top of the file",
        "FunctionDef": "define the function outside compute and call it",
        "Delete": "variables live as long as compute runs",
        "Global": "keep values in state fields",
        "Nonlocal": "keep values in state fields",
        "Match": "write if and elif",
        "AnnAssign": "give the variable a value",
    }
    return hints.get(type(node).__name__, "see docs/codelets.md")
