"""Running one program both ways, for tests that hold ``tiles`` and ``native`` execution together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from abele.graph import Graph, Program, Stream, Tensor
from abele.runtime import Engine


def run_both(
    graph: Graph,
    program: Program,
    inputs: Mapping[Any, Any] | None = None,
    *,
    keep: Iterable[str | Tensor] = (),
    threads: int = 2,
    runs: int = 1,
) -> tuple[Engine, Engine]:
    """Run a program in both modes on the same inputs.

    Args:
        graph: The graph.
        program: The program to run.
        inputs: Values by variable name or tensor; data of input streams by stream.
        keep: Tensors that are to be read although only fused kernels touch them.
        threads: Host threads.
        runs: Number of runs.

    Returns:
        The engines after the runs, ``tiles`` first: ``tiles["y"]``, ``native[tensor]``.
    """
    tiles = run_once(graph, program, inputs or {}, mode="tiles", threads=threads, runs=runs)
    native = run_once(graph, program, inputs or {}, mode="native", threads=threads, runs=runs, keep=keep)
    return tiles, native


def run_once(graph: Graph, program: Program, inputs: Mapping[Any, Any], *, runs: int = 1, **options: Any) -> Engine:
    """The engine after running a program on inputs; its threads are gone, its values can be read."""
    with Engine(graph, program, allow_out_of_memory=True, **options) as engine:
        for handle, values in inputs.items():
            if isinstance(handle, Stream):
                engine.connect(handle, values)
            else:
                engine[handle] = values
        for _ in range(runs):
            engine.run()
    return engine


def assert_agree(
    engines: tuple[Engine, Engine], handles: Iterable[str | Tensor], *, rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    """Assert that both engines hold the same values up to rounding."""
    tiles, native = engines
    for handle in handles:
        np.testing.assert_allclose(native[handle], tiles[handle], rtol=rtol, atol=atol, err_msg=str(handle))
