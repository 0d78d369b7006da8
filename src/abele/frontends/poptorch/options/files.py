"""Options from files, JSON and the environment: each entry is a call of a setter, and nothing else is evaluated."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abele.errors import InvalidOptionError
from abele.frontends.poptorch import enums
from abele.frontends.poptorch.options import locations, strategies

if TYPE_CHECKING:
    from abele.frontends.poptorch.options.options import Options

DEFAULTS_VARIABLE = "POPTORCH_DEFAULT_OPTIONS"


class ConfigFileError(InvalidOptionError):
    """A file of options that cannot be read; the message names the line."""


def load_from_file(options: Options, path: str | Path) -> None:
    """Call the setters that a file has, one a line, without the ``options.`` before them.

    Empty lines and what follows ``#`` are left out. Arguments are literals, names of ``poptorch`` and calls of its
    classes: files are read, not executed.

    Raises:
        ConfigFileError: A line is no such call; or its setter refuses it.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        text = text if text.startswith("options.") else f"options.{text}"
        try:
            _run(options, text)
        except (SyntaxError, AttributeError, AssertionError, NameError, TypeError, ValueError, RuntimeError) as error:
            detail = error.msg if isinstance(error, SyntaxError) else str(error)
            kind = _builtin_name(error)
            raise ConfigFileError(f"{kind} at line {number} of {path}: {detail}\n> {text}") from error


def _builtin_name(error: Exception) -> str:
    """The name of the first of Python's own classes that an error is of; a name that does not exist is the reason."""
    if isinstance(error, AttributeError):
        return "AttributeError"
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def _run(options: Options, text: str) -> None:
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise SyntaxError(f"not a call of a setter: {text}")
    _Reader({"options": options}).value(tree)


class _Reader:
    """Reader of the expressions of a file."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.List() | ast.Tuple() | ast.Set():
                kinds: dict[type, Callable[[Any], Any]] = {ast.List: list, ast.Tuple: tuple, ast.Set: set}
                return kinds[type(node)](self.value(item) for item in node.elts)
            case ast.Dict(keys=keys, values=values) if all(keys):
                return {self.value(k): self.value(v) for k, v in zip(keys, values, strict=True) if k is not None}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.Attribute(value=ast.Name(id="poptorch"), attr=name):
                return _public(name)
            case ast.Attribute(value=ast.Name(id="torch"), attr=name):
                return _torch_type(name)
            case ast.Attribute(value=owner, attr=name) if not name.startswith("__"):
                return getattr(self.value(owner), name)
            case ast.Call(func=function, args=args, keywords=keywords):
                given = {k.arg: self.value(k.value) for k in keywords if k.arg is not None}
                return self.value(function)(*map(self.value, args), **given)
            case ast.Name(id=name):
                raise NameError(f"name {name!r} is not defined")
        raise SyntaxError(f"invalid syntax: {ast.unparse(node)}")


def _public(name: str) -> Any:
    for module in (enums, strategies, locations):
        found = getattr(module, name, None)
        if found is not None and isinstance(found, type) and not name.startswith("_"):
            return found
    raise AttributeError(f"poptorch has no {name!r} that options take")


def _torch_type(name: str) -> Any:
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise AttributeError(f"torch.{name} is no element type")
    return found


def load_from_json(options: Options, text: str, source: str = "JSON") -> None:
    """Call the setters that a JSON object names, such as ``{"Training.gradientAccumulation": 4}``.

    A list is all arguments, anything else the only one; text that names a member of an enumeration
    (``"OutputMode.All"``) is that member.

    Raises:
        ConfigFileError: The text is no JSON object, or names what is no setter.
    """
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigFileError(f"the options of {source} are no JSON: {error}") from error
    if not isinstance(entries, dict):
        raise ConfigFileError(f"the options of {source} are a JSON object of setters, got {text}")
    for name, given in entries.items():
        setter: Any = options
        for part in name.removeprefix("options.").split("."):
            if part.startswith("__") or not hasattr(setter, part):
                raise ConfigFileError(f"the options of {source} name {name!r}, which is no setter of Options")
            setter = getattr(setter, part)
        if not callable(setter):
            raise ConfigFileError(f"the options of {source} name {name!r}, which is no setter of Options")
        arguments = given if isinstance(given, list) else [given]
        setter(*map(_member, arguments))


def _member(value: Any) -> Any:
    """A value, or the member of an enumeration that text names."""
    if not isinstance(value, str) or value.count(".") not in (1, 2):
        return value
    kind, _, member = value.removeprefix("poptorch.").partition(".")
    if kind == "torch":
        return _torch_type(member)
    found = getattr(enums, kind, None)
    if isinstance(found, type) and issubclass(found, Enum) and member in found.__members__:
        return found[member]
    return value


def load_from_environment(options: Options) -> None:
    """Call the setters that the environment names."""
    text = os.environ.get(DEFAULTS_VARIABLE)
    if text:
        load_from_json(options, text, f"the environment variable {DEFAULTS_VARIABLE}")
