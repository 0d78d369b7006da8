"""What it costs to start work on a tile."""

from __future__ import annotations

from dataclasses import dataclass

from abele.machine.source import constant, derived, stated
from abele.machine.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Launch(Spec):
    """Cycles outside the vertices themselves.

    Attributes:
        supervisor_cycles: Overhead of a library's supervisor vertex around its workers.
        scaled_pointer_cycles: In addition, when fields are scaled pointers.
        run_all_cycles: Starting all workers.
        compute_set_cycles: Control code around one compute set, beyond what the vertices' formulas say.
    """

    supervisor_cycles: int = constant(stated(11, "basicOpSupervisorOverhead, PL lib/popops/PerformanceEstimation.cpp"))
    scaled_pointer_cycles: int = constant(stated(2, "PL lib/popops/PerformanceEstimation.cpp:19-30"), minimum=0)
    run_all_cycles: int = constant(stated(6, "PL lib/poplin/PerformanceEstimation.hpp:708-712"), minimum=0)
    compute_set_cycles: int = constant(
        derived(
            60,
            "middle of the 40 to 80 by which silicon exceeds the estimators: +82 binary add, +46 scaled add, "
            "+37 AMP with 128-bit loads (TESS measurements)",
        ),
        minimum=0,
    )
