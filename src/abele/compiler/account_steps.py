"""Account of steps: cost of each row of the steps table, and its basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.compiler.account_groups import GroupTables
from abele.compiler.lower import Step
from abele.compiler.run_account import RunAccount
from abele.compiler.step_kinds import partner_of
from abele.compiler.superstep import Superstep
from abele.compiler.timeline import Part
from abele.report import STEPS, Table


def is_estimated(program: int, superstep: Superstep, account: RunAccount) -> bool:
    """True if the cost of some vertices of a superstep depends on data, and no run of a program has counted them."""
    compute = account.compute.get((program, superstep.index), superstep.compute)
    return compute is not None and bool(compute.estimated)


def basis_of(row: tuple[Step, Part], supersteps: Sequence[Superstep], account: RunAccount) -> str:
    """Basis of the figures of a row: one of ``BASES``."""
    step, part = row
    superstep = supersteps[step.superstep]
    if account.assumed[step.index] or (part.kind == "compute" and is_estimated(step.program, superstep, account)):
        return "assumed"
    return "counted" if step.is_assumed or (part.kind == "compute" and superstep.data_dependent) else "static"


def steps_table(
    rows: Sequence[tuple[Step, Part]],
    op_of: Int64,
    executions: Int64,
    groups: GroupTables,
    basis: Sequence[str],
    phases: Sequence[Part],
    phase_of: Int64,
) -> Table:
    """The table of steps.

    Args:
        rows: Step and part of each row.
        op_of: The operation of each step, int64[steps].
        executions: Times that each step runs in one run of its program, int64[steps].
        groups: Tables of sync groups.
        basis: Basis of the figures of each row.
        phases: The parts that differ.
        phase_of: That of each row, int64[rows].
    """
    index = np.array([s.index for s, _ in rows], dtype=np.int64)

    def column(value: Callable[[Part], Any]) -> npt.NDArray[Any]:
        """A column that is the same in all rows of a phase."""
        return np.array([value(p) for p in phases])[phase_of] if phases else np.empty(0)

    return STEPS.table(
        name=[f"{s.name}: {p.name}" if p.name else s.name for s, p in rows],
        kind=[p.kind for _, p in rows],
        program=[s.program for s, _ in rows],
        op=op_of[index],
        superstep=[s.superstep for s, _ in rows],
        executions=executions[index],
        cycles=column(lambda p: p.cycles),
        compute_cycles=column(lambda p: p.compute),
        exchange_cycles=column(lambda p: p.exchange),
        sync_cycles=column(lambda p: p.sync),
        host_cycles=column(lambda p: p.host),
        tile_balance=column(lambda p: p.balance),
        exchanged_bytes=column(lambda p: p.bytes),
        max_receive_bytes=column(lambda p: p.max_receive_bytes),
        num_vertices=column(lambda p: p.num_vertices),
        active_tiles=column(lambda p: p.active_tiles),
        start_cycle=groups.starts,
        block=[s.block for s, _ in rows],
        basis=basis,
        phase=phase_of,
        partner=[partner_of(s.kind) for s, _ in rows],
    )
