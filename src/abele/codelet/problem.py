"""Errors about a line of a codelet."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from abele.errors import CodeletError


@dataclass(frozen=True)
class Origin:
    """The function that is being read, for messages.

    Attributes:
        codelet: Name of the vertex class.
        file: Source file of the function.
        function: Name of the function.
    """

    codelet: str
    file: str
    function: str

    def problem(
        self, node: ast.AST, message: str, remedy: str | None = None, kind: type[CodeletError] = CodeletError
    ) -> CodeletError:
        """The error that says ``message`` about ``node``."""
        line = getattr(node, "lineno", 0)
        text = ast.unparse(node).splitlines()[0] if isinstance(node, ast.AST) else ""
        return kind(
            f"{self.codelet}.{self.function}: {message}"
            if self.function == "compute"
            else f"{self.codelet}, in {self.function}(): {message}",
            at=f"{self.file}:{line}",
            because=f"in {text[:100]}" if text else None,
            remedy=remedy,
        )
