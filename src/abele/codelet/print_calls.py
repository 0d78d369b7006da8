"""Reading ``print``: text and numbers, as Python would write them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from abele.codelet.calls import Calls
from abele.codelet.printing import check_format
from abele.codelet.rules import is_weak
from abele.codelet.scope import WholeField
from abele.codelet.tree import ConstExpr, Print, VertexExpr

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
