"""Codelet classes from the code of a :class:`~abele.codelet.write.CodeWriter`."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from abele.codelet.fields import FieldDef
from abele.codelet.functions import emission_key
from abele.codelet.layouts import SPAN
from abele.codelet.tree import Helper
from abele.codelet.vertex import CodeletDef, MultiVertex, SupervisorVertex, Vertex
from abele.codelet.write import CodeWriter, type_name
from abele.expr import FUNCTIONS

_BASES: dict[str, type[Vertex]] = {kind.__name__: kind for kind in (Vertex, MultiVertex, SupervisorVertex)}
_DIRECTIONS = {"in": "Input", "out": "Output", "inout": "InOut"}
Formula = Callable[..., Any] | None
"""A cost from the fields of a vertex, or None."""
_BUILT: dict[str, type[Vertex]] = {}


@dataclass(frozen=True, eq=False)
class WrittenCode:
    """A codelet as Python code wrote it.

    Attributes:
        tree: Its ``compute``.
        text: The class as it would stand in source, which says everything that the tree does.
        emitted: Text that tells the code of functions in it that are defined outside Abele.
    """

    tree: Helper
    text: str
    emitted: str = ""

    @property
    def key(self) -> str:
        """Digest of everything that native code depends on."""
        return hashlib.sha256((self.text + self.emitted).encode()).hexdigest()


def written_codelet(
    name: str,
    code: CodeWriter,
    cycles: Formula,
    extra: object = None,
    record: Formula = None,
    overlays: tuple[tuple[str, str], ...] = (),
    least_code_bytes: int = 0,
) -> type[Vertex]:
    """Codelet class of the fields and statements of ``code``; one class for one text and cost.

    Args:
        name: Readable part of the class name; a digest of the text is appended.
        code: Fields and statements.
        cycles: Cost formula; None to count issue slots.
        extra: Key that tells two classes of the same text apart: values that the formulas depend on.
        record: Formula of the bytes that a vertex keeps for itself; None where its fields say that.
        overlays: Outputs and inputs that may be one place in memory; the same for one text.
        least_code_bytes: Bytes of code that it takes on the machine at least; the same for one text.
    """
    text = class_text(code)
    emitted = "".join(emission_key(f) for f in FUNCTIONS if f"{f}(" in text)
    key = hashlib.sha256(f"{name}\n{text}\n{extra!r}{emitted}".encode()).hexdigest()[:12]
    if key not in _BUILT:
        _BUILT[key] = _made(
            f"{name}_{key}", code, text, emitted, (cycles, record), overlays, least_code_bytes=least_code_bytes
        )
    return _BUILT[key]


def class_text(code: CodeWriter) -> str:
    """The class as source, called ``CLASS``."""
    arguments = "self, worker_id" if code.kind == "MultiVertex" else "self"
    lines = ["@codelet", f"class CLASS({code.kind}):", *(f"    {_declared(f)}" for f in code.fields.values()), ""]
    lines += [f"    def compute({arguments}):", *(f"        {line}" for line in code.lines)]
    return "\n".join(lines) + "\n"


def _declared(field: FieldDef) -> str:
    """The line that declares a field."""
    text = type_name(field.type)
    if field.rank:
        text = f"Vector[{text}]" if field.layout() == SPAN else f"Vector[{text}, {field.layout().name}]"
    return f"{field.name}: {f'{_DIRECTIONS[field.direction]}[{text}]' if field.is_edge else text}"


def _made(
    name: str,
    code: CodeWriter,
    text: str,
    emitted: str,
    formulas: tuple[Formula, Formula],
    overlays: tuple[tuple[str, str], ...],
    *,
    least_code_bytes: int,
) -> type[Vertex]:
    file, base = f"<poplibs {name}>", _BASES[code.kind]
    shown = text.replace("CLASS", name)
    linecache.cache[file] = (len(shown), None, shown.splitlines(keepends=True), file)
    workers = {"num_workers": base.num_workers} if issubclass(base, MultiVertex) else {}
    definition = CodeletDef(
        name=name,
        kind=base.kind,
        fields=tuple(code.fields.values()),
        file=file,
        line=1,
        formula=formulas[0],
        record=formulas[1],
        compute=None,
        attributes={"kind": base.kind, **workers},
        overlays=overlays,
        least_code_bytes=least_code_bytes,
        source=WrittenCode(code.helper(file), text, emitted),
    )
    return type(name, (base,), {"codelet": definition, "__doc__": f"A vertex of the libraries:\n\n{shown}"})
