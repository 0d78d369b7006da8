"""Debug mode: a codelet as plain Python, with access checks, and with the bits that compiled code gives."""

from __future__ import annotations

import operator
import sys
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.codelet.compiled import compile_codelet
from abele.codelet.fields import FieldDef
from abele.codelet.python_code import python_function
from abele.codelet.rounding import PlainRounding, Rounding
from abele.codelet.vertex import CodeletDef
from abele.errors import CodeletAccessError, CodeletError
from abele.llvm.flush import denormals_flushed
from abele.numerics import to_device

# Fields as debug mode sees them: arrays that check every access.


class VectorView:
    """A vector field, or one row of a vector of vectors.

    Raises:
        CodeletAccessError: On a read or write outside it, a write to an Input, or a read of an Output element that
            nothing was written to yet.
    """

    def __init__(self, vertex: VertexView, field: FieldDef, array: Array, row: int | None = None) -> None:
        self._vertex = vertex
        self._field = field
        self._array = array
        self._row = row
        self._written = np.zeros(len(array), bool) if field.direction == "out" else None

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        at = self._checked(index, "read")
        if self._written is not None and not self._written[at]:
            raise self._vertex.problem(
                f"{self._name} is an Output, and element {at} is read before it is written",
                "an Output holds nothing at entry; declare the field InOut if its old contents count",
            )
        return self._array[at]

    def __setitem__(self, index: Any, value: Any) -> None:
        at = self._checked(index, "write")
        if not self._field.writable:
            raise self._vertex.problem(
                f"{self._name} is an Input and cannot be written", f"declare it InOut or Output: {self._field.name}"
            )
        if self._written is not None:
            self._written[at] = True
        self._array[at] = value

    def __repr__(self) -> str:
        return f"{self._name}: {self._field.type} {self._array}"

    @property
    def _name(self) -> str:
        row = "" if self._row is None else f"[{self._row}]"
        return f"{self._vertex.definition.name}.{self._field.name}{row}"

    def _checked(self, index: Any, what: str) -> int:
        at = operator.index(index)
        if 0 <= at < len(self._array):
            return at
        raise self._vertex.problem(
            f"{what} of {self._name}[{at}], which has {len(self._array)} elements",
            "indices count from 0; negative ones do not count from the end",
        )


class RowsView:
    """A vector of vectors."""

    def __init__(self, vertex: VertexView, field: FieldDef, rows: Sequence[Array]) -> None:
        self._vertex = vertex
        self._name = f"{vertex.definition.name}.{field.name}"
        self._rows = [VectorView(vertex, field, row, number) for number, row in enumerate(rows)]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> VectorView:
        at = operator.index(index)
        if 0 <= at < len(self._rows):
            return self._rows[at]
        raise self._vertex.problem(
            f"row {at} of {self._name}, which has {len(self._rows)} rows",
            "rows count from 0; negative numbers do not count from the end",
        )


class VertexView:
    """The vertex as ``compute`` sees it in debug mode: its fields as attributes."""

    def __init__(self, definition: CodeletDef, values: dict[str, Any]) -> None:
        object.__setattr__(self, "definition", definition)
        object.__setattr__(self, "_views", {f.name: self._view(f, values[f.name]) for f in definition.fields})

    definition: CodeletDef
    _views: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._views:
            return self.definition.attributes[name]
        field, view = self.definition.field_by_name[name], self._views[name]
        return view if field.rank else view[0]

    def __setattr__(self, name: str, value: Any) -> None:
        self._views[name][0] = value

    def problem(self, message: str, remedy: str) -> CodeletAccessError:
        """The error of an access made by the innermost line of the codelet that is running."""
        return CodeletAccessError(message, at=_running(self), remedy=remedy)

    def _view(self, field: FieldDef, value: Any) -> VectorView | RowsView:
        if field.rank == 2:
            return RowsView(self, field, value)
        return VectorView(self, field, np.atleast_1d(value))


def checked_fields(definition: CodeletDef, fields: Any) -> dict[str, Any]:
    """The given fields as arrays of their element types; numbers become arrays of one element.

    Raises:
        CodeletError: A field is missing or unknown, or an array has another element type.
    """
    names = [f.name for f in definition.fields]
    odd = [n for n in names if n not in fields] or [n for n in fields if n not in names]
    if odd:
        raise CodeletError(
            f"field {definition.name}.{odd[0]} is {'missing' if odd[0] in names else 'unknown'}",
            at=definition.location,
            remedy="give exactly " + ", ".join(names),
        )
    return {f.name: _checked(definition, f, fields[f.name]) for f in definition.fields}


def _checked(definition: CodeletDef, field: FieldDef, value: Any) -> Any:
    if field.rank == 2:
        return [_array(definition, field, row) for row in value]
    return _array(definition, field, value)


def _array(definition: CodeletDef, field: FieldDef, value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        return np.atleast_1d(to_device(value, field.type))
    if value.dtype != field.type.np or value.ndim > 1:
        raise CodeletError(
            f"field {definition.name}.{field.name} is {field.type}, got {value.dtype} of shape {list(value.shape)}",
            at=definition.location,
            remedy=f"give a 1-D array of {field.type}",
        )
    return np.atleast_1d(value)


def _running(vertex: VertexView) -> str:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("_abele_debug") and frame.f_locals.get("self") is vertex:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return vertex.definition.location


_Plain = tuple[Callable[..., None], PlainRounding]
_functions: weakref.WeakKeyDictionary[CodeletDef, dict[Rounding, _Plain]] = weakref.WeakKeyDictionary()


def interpret(
    definition: CodeletDef,
    fields: Mapping[str, Any],
    worker: int | None = None,
    *,
    stochastic: int | None = None,
    vertex: int = 0,
    saturate: bool = False,
) -> None:
    """Run ``compute`` of one vertex as plain Python; print, assert and breakpoints in it work.

    Args:
        definition: The codelet.
        fields: Every field by name: an array, which is written in place; a list of arrays for a vector of vectors; a
            number, or an array of one element, for a rank-0 edge or scalar state.
        worker: Number of the worker, for a MultiVertex; None for all of them one after the other.
        stochastic: Round results in narrow floats at random from this seed, as ``run_stochastic`` does.
        vertex: Number of the vertex, which tells its random numbers from those of others.
        saturate: Hold results that are too large for a narrow float at the largest number.

    Raises:
        CodeletAccessError: An access outside a field, a write to an Input, a read of an Output before it is written.
        CodeletError: The codelet is outside the language, fields do not fit, or an ``assert`` in it fails.
    """
    if definition.language == "cpp":
        from abele.codelet.cpp.debug import run_natively

        run_natively(definition, fields, worker)
        return
    function, rounding = _plain(definition, Rounding(stochastic is not None, saturate))
    values = checked_fields(definition, fields)
    workers: tuple[int | None, ...] = (worker,)
    if definition.kind == "multi" and worker is None:
        workers = tuple(range(definition.attributes["num_workers"]))
    for one in workers:
        arguments = () if one is None or definition.kind != "multi" else (np.int64(one),)
        rounding.begin(stochastic or 0, vertex, one)
        _run(definition, function, VertexView(definition, values), arguments)


def _plain(definition: CodeletDef, way: Rounding) -> _Plain:
    """The codelet as a Python function that rounds in this way."""
    known = _functions.setdefault(definition, {})
    if way not in known:
        rounding = PlainRounding(way)
        known[way] = python_function(compile_codelet(definition).tree, definition.compute, rounding), rounding
    return known[way]


def _run(definition: CodeletDef, function: Callable[..., None], vertex: VertexView, arguments: tuple[Any, ...]) -> None:
    try:
        with np.errstate(all="ignore"), denormals_flushed():
            function(vertex, *arguments)
    except AssertionError as error:
        place = traceback.extract_tb(sys.exc_info()[2])[-1]
        raise CodeletError(
            f"assertion in {definition.name} failed" + (f": {error}" if str(error) else ""),
            at=f"{place.filename}:{place.lineno}",
        ) from error
