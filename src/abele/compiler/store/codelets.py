"""Codelets in a file: their read source, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from abele.codelet import CodeletDef, FieldDef, compile_codelet
from abele.codelet.constraints import Constraint
from abele.codelet.layouts import LIST_LAYOUTS, VECTOR_LAYOUTS
from abele.codelet.stored import StoredCode
from abele.codelet.tree import Helper
from abele.codelet.vertex import NUM_WORKERS
from abele.compiler.store.format import CodeletTable, FieldRow
from abele.compiler.store.records import CODELET_TREE, decode, encode
from abele.compiler.store.trees import check_tree
from abele.errors import FileFormatError
from abele.numerics import as_element_type

_LAYOUTS = {**VECTOR_LAYOUTS, **LIST_LAYOUTS}


def codelet_table(definition: CodeletDef, path: Callable[[str], str]) -> dict[str, Any]:
    """Codelet as JSON; ``path`` gives the text of its source file's path.

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
        "file": path(definition.file),
        "line": definition.line,
        "constraints": [[c.kind, c.one, c.other] for c in definition.constraints],
        "tree": encode(compile_codelet(definition).tree, CODELET_TREE, path),
    }


def _field_row(field: FieldDef) -> list[Any]:
    layouts = [layout.name for layout in field.layouts]
    described = [field.min_align, field.interleaved, field.is_scattered]
    return [field.name, field.direction, field.type.name, field.rank, layouts, *described]


def codelet_of(table: CodeletTable, *, trusted: bool) -> CodeletDef:
    """The codelet that a table describes; without trust its vertices run with every access checked.

    Raises:
        ValueError: It describes none.
    """
    fields = tuple(map(_field, table.fields))
    by_name = {f.name: f for f in fields}
    if len(by_name) != len(fields):
        raise ValueError("two fields have one name")
    helper = decode(table.tree, CODELET_TREE, by_name)
    if not isinstance(helper, Helper):
        raise ValueError("it has no code")
    check_tree(helper)
    edges = {f.name for f in fields if f.is_edge}
    if any({one, other} - edges for _, one, other in table.constraints):
        raise ValueError("a constraint names what is no edge")
    code = StoredCode(helper, msgspec.json.encode(table.tree).decode(), trusted)
    made = CodeletDef(
        name=table.name,
        kind=table.kind,
        fields=fields,
        file=table.file,
        line=table.line,
        formula=None,
        compute=None,
        attributes={"num_workers": NUM_WORKERS},
        constraints=tuple(Constraint(*each) for each in table.constraints),
        language="stored",
        source=code,
    )
    if not trusted:
        # What cannot be compiled is found here, where it is known to come from a file.
        _ = compile_codelet(made).run
    return made


def _field(row: FieldRow) -> FieldDef:
    layouts = tuple(_LAYOUTS[layout] for layout in row.layouts)
    type_ = as_element_type(row.type)
    return FieldDef(
        name=row.name,
        direction=row.direction,
        type=type_,
        rank=row.rank,
        layouts=layouts,
        min_align=row.min_align,
        interleaved=row.interleaved,
        is_scattered=row.scattered,
    )
