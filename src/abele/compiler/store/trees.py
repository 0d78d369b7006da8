"""Rules that the front end enforces while it reads source, checked on codelets from a file."""

from __future__ import annotations

from collections.abc import Iterator

from abele.codelet.printing import check_format
from abele.codelet.tree import Element, For, Helper, HelperCall, Print, Stmt, StoreStmt, all_expressions, walk


def check_tree(compute: Helper) -> None:
    """A codelet writes only fields that it may, counts its loops in steps, and prints numbers as numbers.

    Raises:
        ValueError: It does not.
    """
    for statement in _statements(compute):
        match statement:
            case StoreStmt(field=field) if field.is_edge and not field.writable:
                raise ValueError(f"line {statement.line} writes {field.name!r}, which is an input")
            case StoreStmt(field=field, index=index) if len(index) != field.rank:
                raise ValueError(f"line {statement.line} indexes {field.name!r} with {len(index)} numbers")
            case For(step=0):
                raise ValueError(f"line {statement.line} counts in steps of 0")
            case Print():
                _check_print(statement)
    for expression in all_expressions(compute.body):
        if isinstance(expression, Element) and len(expression.index) != expression.field.rank:
            raise ValueError(
                f"line {expression.line} indexes {expression.field.name!r} with {len(expression.index)} numbers"
            )


def _statements(compute: Helper) -> Iterator[Stmt]:
    called = {e.helper: None for e in all_expressions(compute.body) if isinstance(e, HelperCall)}
    for function in (compute, *called):
        yield from walk(function.body)


def _check_print(statement: Print) -> None:
    if not len(statement.specs) == len(statement.values) == len(statement.text) - 1:
        raise ValueError(f"line {statement.line} prints values without a place")
    for spec, value in zip(statement.specs, statement.values, strict=True):
        check_format(spec, value.type)
