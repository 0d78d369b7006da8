"""Launch: the cost of starting work on a tile."""

from __future__ import annotations

from dataclasses import dataclass

from abele.machine.source import calibrated, constant, stated
from abele.machine.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Launch(Spec):
    """Cycles outside the vertices themselves.

    Silicon exceeds PopLibs' estimators by a constant per compute set that depends on the kind of the vertex alone;
    ``docs/machine.md`` shows the figures.

    Attributes:
        supervisor_cycles: Overhead of a library's supervisor vertex around its workers.
        scaled_pointer_cycles: In addition, when fields are scaled pointers.
        run_all_cycles: Starting all workers.
        compute_set_cycles: Control code around one compute set: calling it, finding its vertices, and returning.
        multi_vertex_cycles: Starting one MultiVertex. A SupervisorVertex has code of its own that starts its workers,
            and its formula holds that; the workers of a MultiVertex are started by a stub of the runtime, which no
            formula holds: it fetches entry point and state, calls, waits and returns.
    """

    supervisor_cycles: int = constant(stated(11, "basicOpSupervisorOverhead, PL lib/popops/PerformanceEstimation.cpp"))
    scaled_pointer_cycles: int = constant(stated(2, "PL lib/popops/PerformanceEstimation.cpp:19-30"), minimum=0)
    run_all_cycles: int = constant(stated(6, "PL lib/poplin/PerformanceEstimation.hpp:708-712"), minimum=0)
    compute_set_cycles: int = constant(
        calibrated(
            42,
            "silicon minus estimator for vertices whose formula has the supervisor's own code: +46 scaled subtract, "
            "+39 AMP matmul with 128-bit loads (TESS measurements); their mean. Seven six-cycle stalls; +-5",
            on=("elementwise: scaled subtract, 256 elements", "silicon: [1008, 16] x [16, 16] on every tile"),
        ),
        minimum=0,
    )
    multi_vertex_cycles: int = constant(
        calibrated(
            40,
            "silicon minus estimator of a MultiVertex, +82 binary add (TESS measurement), less what any compute set "
            "takes; +-5",
            on=("elementwise: add, 10 elements per tile",),
        ),
        minimum=0,
    )
