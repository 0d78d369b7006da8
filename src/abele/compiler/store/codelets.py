"""Codelets in a file: what was read of their source, as data."""

from __future__ import annotations

import json
from typing import Any

from abele.codelet import CodeletDef, FieldDef, compile_codelet
from abele.codelet.constraints import Constraint
from abele.codelet.layouts import LIST_LAYOUTS, VECTOR_LAYOUTS
from abele.codelet.stored import StoredCode
from abele.codelet.tree import Helper
from abele.codelet.vertex import NUM_WORKERS
from abele.compiler.store.records import CODELET_TREE, decode, encode
from abele.errors import FileFormatError
from abele.numerics import as_element_type

_KINDS = ("vertex", "multi", "supervisor")
_DIRECTIONS = ("in", "out", "inout", "state")
_LAYOUTS = {**VECTOR_LAYOUTS, **LIST_LAYOUTS}


def codelet_table(definition: CodeletDef) -> dict[str, Any]:
    """A codelet as JSON.

    Raises:
        FileFormatError: It is C++, of which only native code is known.
    """
    if definition.language not in ("python", "stored"):
        raise FileFormatError(
            f"codelet {definition.name} is written in {definition.language}: it cannot be kept in a file as data",
            at=definition.location,
            remedy="save the program's source with it, or write the codelet in Python",
        )
    return {
        "name": definition.name,
        "kind": definition.kind,
        "fields": [_field_row(f) for f in definition.fields],
        "file": definition.file,
        "line": definition.line,
        "constraints": [[c.kind, c.one, c.other] for c in definition.constraints],
        "tree": encode(compile_codelet(definition).tree, CODELET_TREE),
    }


def _field_row(field: FieldDef) -> list[Any]:
    layouts = [layout.name for layout in field.layouts]
    described = [field.min_align, field.interleaved, field.is_scattered]
    return [field.name, field.direction, field.type.name, field.rank, layouts, *described]


def codelet_of(table: dict[str, Any], *, trusted: bool) -> CodeletDef:
    """The codelet that a table describes; without trust its vertices run with every access checked.

    Raises:
        ValueError: It describes none.
    """
    fields = tuple(_field(row) for row in table["fields"])
    by_name = {f.name: f for f in fields}
    if table["kind"] not in _KINDS or len(by_name) != len(fields):
        raise ValueError(f"codelet {table['name']!r} is of no kind that exists")
    helper = decode(table["tree"], CODELET_TREE, by_name)
    if not isinstance(helper, Helper):
        raise ValueError(f"codelet {table['name']!r} has no code")
    constraints = tuple(Constraint(str(kind), str(one), str(other)) for kind, one, other in table["constraints"])
    code = StoredCode(helper, json.dumps(table["tree"]), trusted)
    made = CodeletDef(
        name=str(table["name"]),
        kind=table["kind"],
        fields=fields,
        file=str(table["file"]),
        line=int(table["line"]),
        formula=None,
        compute=None,  # type: ignore[arg-type]
        attributes={"num_workers": NUM_WORKERS},
        constraints=constraints,
        language="stored",
        source=code,
    )
    if not trusted:
        # What cannot be compiled is found here, where it is known to come from a file.
        _ = compile_codelet(made).run
    return made


def _field(row: Any) -> FieldDef:
    name, direction, type_, rank, layouts, align, interleaved, scattered = row
    if direction not in _DIRECTIONS or rank not in (0, 1, 2):
        raise ValueError(f"field {name!r} is of no kind that exists")
    described = tuple(_LAYOUTS[layout] for layout in layouts)
    return FieldDef(
        str(name), direction, as_element_type(type_), rank, described, int(align), bool(interleaved), bool(scattered)
    )
