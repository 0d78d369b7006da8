"""The source of a function as a syntax tree with its true line numbers."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from functools import lru_cache
from types import CodeType

from abele.errors import CodeletError


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
