"""Converting tensors between element types."""

from __future__ import annotations

from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popops.expr import Cast, PlaceHolder
from abele.poplibs.popops.map import map, map_with_output
from abele.poplibs.poputil.layout import clone


def cast(graph: Graph, tensor: Tensor, dtype: ElementType | str, prog: Sequence, name: str = "cast") -> Tensor:
    """``tensor`` as a new tensor of ``dtype``: floats to integers truncate, narrower floats round to nearest even."""
    dtype = as_element_type(dtype)
    if dtype == tensor.dtype:
        out = clone(graph, tensor, f"{name}/out")
        prog.add(Copy(tensor, out))
        return out
    return map(graph, Cast(PlaceHolder(1), dtype), [tensor], prog, name)


def cast_with_output(graph: Graph, tensor: Tensor, out: Tensor, prog: Sequence, name: str = "cast") -> None:
    """Write ``tensor`` to ``out``, converted to its element type; see :func:`cast`."""
    if out.dtype == tensor.dtype:
        prog.add(Copy(tensor, out))
    else:
        map_with_output(graph, Cast(PlaceHolder(1), out.dtype), [tensor], out, prog, name)
