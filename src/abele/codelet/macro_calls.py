"""Reading calls of macros: their values, and the statements before them."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from types import CodeType, FunctionType
from typing import Any, TypeVar

from abele.codelet import construct
from abele.codelet.expressions import Expressions, Origin
from abele.codelet.functions import VertexFunction
from abele.codelet.printing import check_format
from abele.codelet.rules import cast, is_weak
from abele.codelet.scope import NameScope, Self, VertexMethod, WholeField, Written
from abele.codelet.tree import ConstExpr, Helper, HelperCall, Print, Stmt, VertexExpr, own_expressions, walk
from abele.errors import CodeletError
from abele.numerics import ElementType, bool_, f32, i64

# The source of a function as a syntax tree with its true line numbers.


@lru_cache(maxsize=512)
def function_tree(code: CodeType) -> ast.FunctionDef:
    """The definition of the function that ``code`` belongs to.

    Raises:
        CodeletError: Its source is not known, as for code typed at a prompt.
    """
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno
    if not lines or first > len(lines):
        raise CodeletError(
            f"the source of {code.co_qualname} is not known",
            at=f"{code.co_filename}:{first}",
            remedy="put the codelet into a file; the vertex language is compiled from source text",
        )
    text = textwrap.dedent("".join(inspect.getblock(lines[first - 1 :])))
    try:
        tree = ast.parse(text).body[0]
    except SyntaxError as error:
        raise CodeletError(
            f"the source of {code.co_qualname} cannot be read alone: {error.msg}", at=f"{code.co_filename}:{first}"
        ) from error
    ast.increment_lineno(tree, first - 1)
    if not isinstance(tree, ast.FunctionDef):
        raise CodeletError(
            f"{code.co_qualname} is no plain function",
            at=f"{code.co_filename}:{first}",
            remedy="write a def; lambdas and coroutines are outside the vertex language",
        )
    return tree


# Macros: functions whose code is put in place of the call.
#
# A plain function that a codelet calls is code of its own, which is called when the vertex runs. A macro is not: its
# statements come before the one that calls it, and what it returns stands where it is called. Code that several
# codelets share then costs, and is vectorised, as if each had written it out. Arguments are put where the parameters
# stand, as often as they stand there; variables of a macro are its own.

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__abele_macro__"


def macro(function: F) -> F:
    """Make a macro of a function: its code takes the place of each call in a ``compute``.

    Its parameters may be values, fields, ``self``, element types, settings and other macros. A ``return`` comes last,
    or last of what is left where conditions are known when the code is made.
    """
    setattr(function, _MARK, True)
    return function


def is_macro(function: FunctionType) -> bool:
    """True if :func:`macro` made it one."""
    return hasattr(function, _MARK)


# Reading ``print``: text and numbers, as Python would write them.

# Reading calls: casts, functions of the language, and plain Python helpers.

ReadHelper = Callable[[FunctionType, list[Any], ast.Call], Helper]


class Calls(Expressions):
    """Reads the expressions of one function, calls included.

    Attributes:
        read_helper: Reads a helper function for given arguments: values, fields or ``self``.
    """

    read_helper: ReadHelper

    def call(self, node: ast.Call) -> Any:
        """Value or object that a call denotes."""
        called = self.resolve(node.func)
        if node.keywords and not isinstance(called, VertexMethod | FunctionType):
            raise self.origin.problem(node, "keyword arguments", "give all arguments by position")
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise self.origin.problem(node, "starred arguments", "give each argument by itself")
        if isinstance(called, ElementType):
            return self._cast(node, called)
        if isinstance(called, VertexFunction):
            return self._function(node, called)
        if isinstance(called, VertexMethod | FunctionType):
            function, first = (called, []) if isinstance(called, FunctionType) else (called.function, [Self()])
            return self.expanded(node, function, first) if is_macro(function) else self._helper(node, function, first)
        raise self.origin.problem(
            node, "this cannot be called", "call types, functions of the language or plain functions"
        )

    def positional(self, node: ast.Call, function: FunctionType, given: int) -> ast.Call:
        """The call with all arguments by position; ``given`` parameters of the function come before those written."""
        if not node.keywords:
            return node
        code = function.__code__
        names = code.co_varnames[given + len(node.args) : code.co_argcount]
        written = {k.arg: k.value for k in node.keywords}
        if set(written) != set(names):
            wants, got = ", ".join(names), ", ".join(k or "**" for k in written)
            problem = f"{function.__name__} takes ({wants}) beside what is given by position, got ({got})"
            raise self.origin.problem(node, problem, "name each parameter that is left")
        call = ast.Call(node.func, [*node.args, *(written[n] for n in names)], [])
        return ast.copy_location(call, node)

    def expanded(self, node: ast.Call, function: FunctionType, first: list[Any]) -> Any:
        """Value or object that a call of a macro denotes."""
        raise NotImplementedError

    def _cast(self, node: ast.Call, wanted: ElementType) -> VertexExpr:
        (arg,) = self._values(node, 1, str(wanted))
        return construct.converted(arg, wanted, node.lineno)

    def _values(self, node: ast.Call, count: int, name: str) -> list[VertexExpr]:
        if len(node.args) != count:
            raise self.origin.problem(node, f"{name} takes {count} arguments, got {len(node.args)}")
        return [self.value(a) for a in node.args]

    def _function(self, node: ast.Call, function: VertexFunction) -> VertexExpr:
        match function.name:
            case "len":
                return self._len(node)
            case "min" | "max" as name:
                return self._extreme(node, name)
            case "abs":
                return self._abs(node)
            case "float" | "int" | "bool" as name:
                return self._cast(node, {"float": f32, "int": i64, "bool": bool_}[name])
            case "random_u32":
                return self._random(node)
            case "range":
                raise self.origin.problem(node, "range outside a for loop", "for i in range(…):")
        return self._math(node, function)

    def _math(self, node: ast.Call, function: VertexFunction) -> VertexExpr:
        return construct.call(function, self._values(node, function.arity, function.name), node.lineno)

    def _len(self, node: ast.Call) -> VertexExpr:
        owner = self.resolve(node.args[0]) if len(node.args) == 1 else None
        if not isinstance(owner, WholeField):
            raise self.origin.problem(
                node, "len of something that is no vector field", "len(self.x), len(self.rows[i])"
            )
        return self.length(owner, node)

    def _extreme(self, node: ast.Call, name: str) -> VertexExpr:
        if len(node.args) < 2:
            raise self.origin.problem(node, f"{name} of fewer than two values", f"{name}(a, b)")
        return construct.extreme(name, [self.value(a) for a in node.args], node.lineno)

    def _abs(self, node: ast.Call) -> VertexExpr:
        (arg,) = self._values(node, 1, "abs")
        return construct.absolute(arg, node.lineno)

    def _random(self, node: ast.Call) -> VertexExpr:
        args = self._values(node, 4, "random_u32")
        for arg, source in zip(args, node.args, strict=True):
            if arg.type.is_float:
                raise self.origin.problem(source, f"random_u32 of a {arg.type}", "it takes integers")
        return construct.random_word(args, node.lineno)

    def _helper(self, node: ast.Call, function: FunctionType, first: list[Any]) -> VertexExpr:
        node = self.positional(node, function, len(first))
        arguments = first + [self._argument(a) for a in node.args]
        count = function.__code__.co_argcount
        if len(arguments) != count:
            wants = ", ".join(function.__code__.co_varnames[:count])
            raise self.origin.problem(node, f"{function.__name__} takes ({wants}), got {len(node.args)} arguments")
        helper = self.read_helper(function, arguments, node)
        values = tuple(_strong(a) for a in arguments if isinstance(a, VertexExpr))
        rows = tuple(a.row for a in arguments if isinstance(a, WholeField) and a.row is not None)
        if rows:
            raise self.origin.problem(
                node,
                "a row is passed to a function",
                f"pass the vector of rows and the row number, {function.__name__}(rows, i)",
            )
        return HelperCall(type=helper.result or i64, helper=helper, args=values, line=node.lineno)

    def _argument(self, node: ast.expr) -> Any:
        found = self.resolve(node)
        return found if isinstance(found, WholeField | Self) else self.value(node)


def _strong(value: VertexExpr) -> VertexExpr:
    """A number without a type of its own gets the default one."""
    return cast(value, value.type) if is_weak(value) else value


_KEYWORDS = {"sep": " ", "end": "\n"}


@dataclass
class _Message:
    """Content of a print so far: texts with values between them."""

    text: list[str] = field(default_factory=lambda: [""])
    specs: list[str] = field(default_factory=list)
    values: list[VertexExpr] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.text[-1] += text

    def show(self, value: VertexExpr, spec: str) -> None:
        if isinstance(value, ConstExpr) and (is_weak(value) or isinstance(value.value, bool)):
            self.say(format(value.value, spec))
            return
        self.values.append(value)
        self.specs.append(spec)
        self.text.append("")


class Prints(Calls):
    """Reads the expressions of one function, and its prints."""

    def print(self, node: ast.Call) -> Print:
        """The statement that a call of ``print`` means."""
        options = dict(_KEYWORDS)
        for keyword in node.keywords:
            if keyword.arg == "flush":
                continue
            if keyword.arg not in options or not isinstance(keyword.value, ast.Constant):
                raise self.origin.problem(node, f"print with {keyword.arg}", "sep and end may be given, as text")
            known = keyword.value.value
            options[keyword.arg] = _KEYWORDS[keyword.arg] if known is None else str(known)
        message = _Message()
        for number, argument in enumerate(node.args):
            message.say(options["sep"] if number else "")
            self._argument_of_print(message, argument)
        message.say(options["end"])
        return Print(
            text=tuple(message.text), specs=tuple(message.specs), values=tuple(message.values), line=node.lineno
        )

    def _argument_of_print(self, message: _Message, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=str() as text):
                message.say(text)
            case ast.JoinedStr():
                for part in node.values:
                    self._part(message, part)
            case ast.Starred():
                raise self.origin.problem(node, "starred arguments of print", "name them one by one")
            case _:
                message.show(self._printable(node), "")

    def _part(self, message: _Message, part: ast.expr) -> None:
        if isinstance(part, ast.Constant):
            message.say(str(part.value))
            return
        assert isinstance(part, ast.FormattedValue)
        value, spec = self._printable(part.value), self._spec(part.format_spec)
        try:
            check_format(spec, value.type)
        except ValueError as error:
            raise self.origin.problem(part, f"a {value.type} written by format {spec!r}: {error}") from error
        message.show(value, spec)

    def _spec(self, spec: ast.expr | None) -> str:
        if spec is None:
            return ""
        parts = spec.values if isinstance(spec, ast.JoinedStr) else [spec]
        if not all(isinstance(p, ast.Constant) for p in parts):
            raise self.origin.problem(spec, "a format that is computed", "write it out, as in {x:.3f}")
        return "".join(str(p.value) for p in parts if isinstance(p, ast.Constant))

    def _printable(self, node: ast.expr) -> VertexExpr:
        found = self.resolve(node)
        if isinstance(found, WholeField):
            name = found.field.name
            raise self.origin.problem(node, f"{name} is printed as a whole", f"print its elements: {name}[i]")
        return self.value(node)


@dataclass
class MacroExpansion:
    """Statements and variable names of macros that are being read.

    Attributes:
        before: Statements that come before the one being read; None where nothing can.
        names: Names of variables by macro, what it was called with, and name in its source.
        targets: Variables that the call at hand is assigned to.
        open: Macros being read.
        reserved: Names of variables of the function that calls them.
        used: Keys of ``names`` that the statement being read has variables by.
    """

    before: list[Stmt] | None = None
    names: dict[Any, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    open: list[FunctionType] = field(default_factory=list)
    reserved: frozenset[str] = frozenset()
    used: set[Any] = field(default_factory=set)


class Macros(Prints):
    """Reads the expressions of one function, calls of macros included."""

    expansion: MacroExpansion

    def tail(self, nodes: list[ast.stmt]) -> tuple[list[Stmt], ast.expr | None]:
        """Statements up to a ``return``, and its value."""
        raise NotImplementedError

    def inside(self, origin: Origin, scope: NameScope) -> Macros:
        """A reader of a macro's code."""
        raise NotImplementedError

    @contextmanager
    def room(self, targets: tuple[str, ...] = ()) -> Iterator[list[Stmt]]:
        """Collect statements that come before the one read inside."""
        kept = self.expansion.before, self.expansion.targets
        found: list[Stmt] = []
        if not self.expansion.open:
            self.expansion.used.clear()
        self.expansion.before, self.expansion.targets = found, targets
        yield found
        self.expansion.before, self.expansion.targets = kept

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Read inside without room for statements: the code is read again, or perhaps not at all, at run time."""
        kept = self.expansion.before, self.expansion.targets
        self.expansion.before, self.expansion.targets = None, ()
        yield
        self.expansion.before, self.expansion.targets = kept

    def macro_called(self, node: ast.expr) -> tuple[FunctionType, list[Any]] | None:
        """Macro that ``node`` calls, and its values beside the arguments; None where it calls none."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        called = self.resolve(node.func)
        first: list[Any] = []
        if isinstance(called, VertexMethod):
            called, first = called.function, [Self()]
        return (called, first) if isinstance(called, FunctionType) and is_macro(called) else None

    def expanded(self, node: ast.Call, function: FunctionType, first: list[Any]) -> Any:
        """Value of a call of a macro, after its statements."""
        values = self.macro_values(node, function, first)
        if isinstance(values, list):
            raise self.origin.problem(node, f"{function.__name__} returns {len(values)} values", "a, b = f(…)")
        if values is None:
            raise self.origin.problem(node, f"{function.__name__} returns nothing", "call it as a statement of its own")
        return values

    def macro_values(self, node: ast.Call, function: FunctionType, first: list[Any]) -> Any:
        """Values that a macro returns: a list where there are several, None where it returns nothing."""
        node = self.positional(node, function, len(first))
        code, expansion = function.__code__, self.expansion
        names = code.co_varnames[: code.co_argcount]
        if code.co_kwonlyargcount or code.co_flags & 0x0C or len(names) != len(first) + len(node.args):
            wants = ", ".join(names)
            raise self.origin.problem(node, f"{function.__name__} takes ({wants}), got {len(node.args)} arguments")
        if function in expansion.open:
            raise self.origin.problem(node, f"{function.__name__} calls itself", "a macro is put in place of its call")
        # Arguments are read where they are written, with no statements before them: those would be read again.
        with self.no_room():
            found = [*first, *map(self.resolve, node.args)]
        known = {
            n: Written(a, self.resolve) if isinstance(v, VertexExpr) else v
            for n, a, v in zip(names[len(first) :], node.args, found[len(first) :], strict=True)
        }
        renamed = self._renamed(function_tree(code), function, found, node)
        tree = _renamed_tree(code, tuple(renamed.items()))
        scope = NameScope(function, {}, {}, dict(zip(names, first, strict=False)) | known)
        for name in renamed.values():
            if name in self.scope.types:
                scope.types[name] = self.scope.types[name]
                scope.lines[name] = node.lineno
        reader = self.inside(Origin(self.origin.codelet, code.co_filename, function.__name__), scope)
        expansion.open.append(function)
        result = self._read_macro(node, reader, tree, set(renamed.values()))
        expansion.open.pop()
        self.scope.types |= scope.types
        self.scope.lines |= {n: node.lineno for n in scope.types if n not in self.scope.lines}
        self.scope.defined |= scope.defined
        return result

    def _read_macro(self, node: ast.Call, reader: Macros, tree: ast.FunctionDef, own: set[str]) -> Any:
        expansion = self.expansion
        before = expansion.before
        with self.room():
            statements, returned = reader.tail(tree.body)
        if statements and before is None:
            raise self.origin.problem(
                node,
                f"{tree.name}() has statements, which have no place here",
                "call it in a statement before this one",
            )
        with self.room() if before is not None else self.no_room() as late:
            result = self._returned(reader, returned, own)
        for statement in [*statements, *(late or [])]:
            _moved(statement, node.lineno)
        if before is not None:
            before += [*statements, *(late or [])]
        for value in result if isinstance(result, list) else [result]:
            if isinstance(value, VertexExpr):
                _moved(value, node.lineno)
        return result

    def _returned(self, reader: Macros, returned: ast.expr | None, own: set[str]) -> Any:
        if isinstance(returned, ast.Tuple):
            return [reader.value(e) for e in returned.elts]
        return None if returned is None else reader.resolve(returned)

    def _renamed(
        self, tree: ast.FunctionDef, function: FunctionType, found: list[Any], node: ast.Call
    ) -> dict[str, str]:
        """Names of a macro's variables here: those of the variables that they are returned to, or unused names."""
        mine = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        renamed = dict(zip(_ends(tree), self.expansion.targets, strict=False)) if self.expansion.targets else {}
        read = {n.id for a in node.args for n in ast.walk(a) if isinstance(n, ast.Name)}
        renamed = {n: t for n, t in renamed.items() if n in mine and t not in read}
        if len(set(renamed.values())) < len(renamed):
            renamed = {}
        kind = (function, tuple(_identity(f) for f in found))
        for name in sorted(mine - set(renamed)):
            # Statements share variables of the macros that they call; calls in one statement do not.
            key = next(k for k in ((*kind, name, n) for n in count()) if k not in self.expansion.used)
            self.expansion.used.add(key)
            if key not in self.expansion.names:
                self.expansion.names[key] = self._unused(name)
            renamed[name] = self.expansion.names[key]
        return renamed

    def _unused(self, name: str) -> str:
        taken = {*self.scope.types, *self.scope.known, *self.scope.function.__code__.co_varnames}
        taken |= {*self.expansion.reserved, *self.expansion.names.values()}
        number = 1
        while (found := name if number == 1 else f"{name}_{number}") in taken:
            number += 1
        return found


@lru_cache(maxsize=512)
def _renamed_tree(code: CodeType, renamed: tuple[tuple[str, str], ...]) -> ast.FunctionDef:
    """A macro with its variables renamed; reading it changes nothing in it."""
    tree = deepcopy(function_tree(code))
    _LocalNames(dict(renamed)).visit(tree)
    return tree


class _LocalNames(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node


def _ends(tree: ast.FunctionDef) -> list[str]:
    """Names that the last statement returns; an empty one for other expressions."""
    last = tree.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return []
    values = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    return [v.id if isinstance(v, ast.Name) else "" for v in values]


def _identity(found: Any) -> Any:
    """Key that tells two arguments apart, as far as the types of a macro's variables go."""
    if isinstance(found, ConstExpr):
        return (found.type, found.weak)
    if isinstance(found, VertexExpr):
        return found.type
    if isinstance(found, WholeField):
        return (found.field, found.row is None)
    return "self" if isinstance(found, Self) else (type(found), found)


def _moved(code: Stmt | VertexExpr, line: int) -> None:
    """Code of a macro belongs to the line that calls it."""
    if isinstance(code, VertexExpr):
        for part in code.walk():
            part.line = line
        return
    for statement in walk([code]):
        statement.line = line
        for expression in own_expressions(statement):
            for part in expression.walk():
                part.line = line
