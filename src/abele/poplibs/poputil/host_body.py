"""Steps that the host runs in place of the body of a library call without a kernel."""

from __future__ import annotations

import numpy as np

from abele.graph import ComputeSet, Execute, Graph, LibraryCall, Tensor
from abele.graph.program import Sequence


def note_host(prog: Sequence, host_body: Sequence | None) -> None:
    """Give the last library call of ``prog`` a program that the host may run in place of its body."""
    call = prog.steps[-1]
    assert isinstance(call, LibraryCall)
    call.host_body = host_body


def host_vertices(step: ComputeSet, codelet_class: type, **fields: Tensor | int) -> None:
    """Append vertices of a host to a step, one for each row of the tensors; they cost nothing."""
    num = next(t.shape[0] for t in fields.values() if isinstance(t, Tensor))
    step.vertices(codelet_class, tile=np.zeros(num, np.int32), cycles=np.zeros(num, np.int64), **fields)


def host_rows(graph: Graph, name: str, codelet_class: type, **fields: Tensor) -> Sequence:
    """Steps of a host: one vertex for each row of ``fields``, whose last dimensions are the rows; they cost nothing."""
    step = graph.compute_set(f"{name}/host")
    rows = {field: tensor.reshape((-1, tensor.shape[-1])) for field, tensor in fields.items()}
    host_vertices(step, codelet_class, **rows)
    return Sequence(Execute(step))
