"""Planning embeddings: tables whose rows are looked up and updated by many indices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph
from abele.machine import System
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popops.slicing.plan import SlicePlan
from abele.poplibs.popops.slicing.plan_search import Wish, search
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.options import PROPORTION, Option, Options, choice, element_type, flag, read_options

ConstraintName = Literal["slicedDimSplit", "unslicedDimSplit", "lookupSplit", "groupSplit"]
CONSTRAINTS: dict[ConstraintName, str] = {
    "slicedDimSplit": "entry_split",
    "unslicedDimSplit": "column_split",
    "lookupSplit": "lookup_split",
    "groupSplit": "group_split",
}
"""Splits that ``planConstraints`` may give, and their names in plans."""

PLAN_OPTIONS: dict[str, Option] = {
    "availableMemoryProportion": PROPORTION,
    "usedForSlice": flag(True),
    "usedForUpdate": flag(True),
    "operationForUpdate": choice("add", "none", "max", "mul"),
    "indicesDistribution": choice("uniform", "onePoint"),
    "indicesAreSorted": flag(False),
    "validateIndices": flag(False),
    "planConstraints": Option({}, dict[ConstraintName, Annotated[int, Meta(ge=1)]]),
    "partialType": element_type(None),
    "planMinimisationTarget": choice("memory", "cycles", "cyclesWithTable", "storage"),
}
"""Options of :func:`plan`. PopLibs minimises memory unless told otherwise. ``cycles`` takes the fastest plan whose
temporary data are within ``availableMemoryProportion``; ``cyclesWithTable`` counts the table's way to where it is
planned as well. ``storage`` takes the least of table and code on the fullest tile within that: tables live on, while
temporary data overlay others'. PopLibs has neither of these two.
Sums are kept in the table's own type unless ``partialType`` says otherwise. ``indicesAreSorted`` changes no result, and
costs are those of indices that are not."""


def plan(
    graph: Graph,
    dtype: ElementType | str,
    num_entries: int,
    output_size: int,
    num_lookups: int,
    *,
    group_size: int = 1,
    options: Options = None,
    name: str = "embedding.plan",
) -> SlicePlan:
    """Plan of a table [num_entries, output_size] over the tiles, for calls with ``num_lookups`` indices.

    Args:
        graph: Graph whose tiles are used.
        dtype: Element type of the table.
        num_entries: Rows.
        output_size: Elements of a row.
        num_lookups: Indices of a call (of each group).
        group_size: Tables side by side, for the grouped functions.
        options: See :data:`PLAN_OPTIONS`.
        name: For errors.

    Raises:
        TensorError: A table without elements.
        InvalidOptionError: A misspelt option, or constraints that no plan meets.
    """
    return plan_multiple(
        graph, dtype, num_entries, output_size, (num_lookups,), group_size=group_size, options=options, name=name
    )


def plan_multiple(
    graph: Graph,
    dtype: ElementType | str,
    num_entries: int,
    output_size: int,
    num_lookups: Sequence[int],
    *,
    group_size: int = 1,
    options: Options = None,
    name: str = "embedding.plan",
) -> SlicePlan:
    """One plan for calls with different numbers of indices on the same table: that of the most; see :func:`plan`.

    Raises:
        TensorError: No number of indices, or a negative one.
    """
    chosen = read_options(name, options, PLAN_OPTIONS)
    lookups = tuple(int(n) for n in num_lookups)
    if min(num_entries, output_size, group_size) < 1 or not lookups or min(lookups) < 0:
        raise TensorError(
            f"{name}: no table {group_size} x {num_entries} x {output_size} with {list(lookups)} indices",
            remedy="at least one group, entry, column, and a number of indices from 0 on",
        )
    type_, partial = as_element_type(dtype), chosen["partialType"]
    if partial is not None and partial.kind != type_.kind:
        raise TypeMismatchError(f"{name}: partialType {partial} does not go with a table of {type_}")
    updates = chosen["usedForUpdate"]
    table = SlicePlan(
        type_,
        num_entries,
        output_size,
        max(lookups),
        group_size,
        partial_type=partial,
        validates=chosen["validateIndices"],
    )
    wish = Wish(
        chosen["usedForSlice"],
        chosen["operationForUpdate"] if updates else None,
        chosen["availableMemoryProportion"],
        chosen["planMinimisationTarget"],
        tuple(sorted((CONSTRAINTS[name], parts) for name, parts in chosen["planConstraints"].items())),
        chosen["indicesDistribution"] == "uniform",
    )
    if not (wish.for_slice or updates):
        raise InvalidOptionError(f"{name}: a plan is used for slices or for updates, usedForSlice or usedForUpdate")
    return _searched(graph.system, table, wish)


@lru_cache(maxsize=512)
def _searched(system: System, table: SlicePlan, wish: Wish) -> SlicePlan:
    return search(system, table, wish)


FORMS: Forms = {
    "plan": ("dtype group_size num_entries output_size num_lookups",),
    "plan_multiple": ("dtype group_size num_entries output_size num_lookups",),
}

__all__ = [
    "PLAN_OPTIONS",
    "SlicePlan",
    "plan",
    "plan_multiple",
]
globals().update(guarded_functions(globals(), ["plan", "plan_multiple"], FORMS))
planMultiple = plan_multiple  # noqa: N816
