"""Debug mode: a codelet as plain Python, with access checks, and with the bits that compiled code gives."""

from __future__ import annotations

import sys
import traceback
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from abele.codelet.compiled import compile_codelet
from abele.codelet.python_code import python_function
from abele.codelet.rounding import PlainRounding, Rounding
from abele.codelet.vertex import CodeletDef
from abele.codelet.views import VertexView, checked_fields
from abele.errors import CodeletError
from abele.llvm.flush import denormals_flushed

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
