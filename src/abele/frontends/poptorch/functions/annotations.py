"""Names and marks for calls that are recorded inside a context."""

from __future__ import annotations

from types import TracebackType

from abele.frontends.poptorch.capture.torch_export import SCOPE
from abele.frontends.poptorch.errors import CheckError
from abele.frontends.poptorch.program.blocks import annotate

_scopes: list[str] = []


class NameScope:
    """A name before the names of all operations recorded inside: ``with poptorch.NameScope("encoder"): ...``.

    Args:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise CheckError("Parameter to NameScope must be a string")
        self.name = name

    def __enter__(self) -> None:
        _scopes.append(self.name)
        self._annotation = annotate({SCOPE: "/".join(_scopes)})
        self._annotation.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._annotation.__exit__(kind, error, trace)
        _scopes.pop()


class Attribute:
    """Attributes of the operations recorded inside, such as ``__outline={"layer": "0"}``: equal layers are found, and
    made once, with or without them.

    Args:
        **attributes: Tables of text by name.
    """

    def __init__(self, **attributes: dict[str, str]) -> None:
        for name, table in attributes.items():
            if not isinstance(table, dict) or not all(isinstance(part, str) for pair in table.items() for part in pair):
                raise CheckError(f"the attribute {name} is a dictionary of text by text, got {table!r}")
        self.attributes = attributes

    def __enter__(self) -> None:
        self._annotation = annotate({"abele_attributes": self.attributes})
        self._annotation.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._annotation.__exit__(kind, error, trace)
