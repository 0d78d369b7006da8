"""Workers of a vertex whose rows alternate, run as one: all rows in the order in which they lie.

``for r in range(worker_id, len(self.y), self.num_workers)`` gives worker 0 the rows 0, 6, 12, … and worker 1 the rows
1, 7, 13, … On a tile they run side by side. A host runs one worker after the other, and reads a grid of 60 rows six
times with nine rows in ten left out, so that neighbours above and below are read from a farther cache, and streams of
the processor's prefetcher end with every row. Workers of a vertex may run in any order, so the loops of all six are
one loop over all rows. That is right where a worker's number does nothing but begin such loops, and no variable goes
from one iteration to the next.
"""

from __future__ import annotations

from dataclasses import replace

from abele.codelet.parallel import carries_nothing, left_unset
from abele.codelet.tree import (
    Assign,
    ConstExpr,
    Evaluate,
    For,
    Helper,
    IfStmt,
    Local,
    Stmt,
    StoreStmt,
    all_expressions,
    assigned,
    walk,
)
from abele.codelet.vertex import NUM_WORKERS


def as_one(function: Helper) -> Helper | None:
    """``compute`` of a MultiVertex for all workers at once; None where they have to run one by one."""
    worker = function.parameters[0]
    body: list[Stmt] = []
    # After a loop its variables are of the last row of all, not of a worker's.
    unset: set[str] = set()
    for statement in function.body:
        if isinstance(statement, For) and _alternates(statement, worker):
            zero = ConstExpr(type=statement.start.type, value=0, line=statement.line)
            body.append(replace(statement, start=zero, step=1))
        elif isinstance(statement, Assign):
            body.append(statement)
        else:
            return None
        rest = left_unset(body[-1:], unset)
        if rest is None:
            return None
        unset = rest | assigned([statement]) if isinstance(statement, For) else rest
    names = {e.name for e in all_expressions(body) if isinstance(e, Local)} | assigned(body)
    loops = any(isinstance(s, For) for s in body)
    return replace(function, body=body, parameters=()) if loops and worker not in names else None


def _alternates(loop: For, worker: str) -> bool:
    """True if a loop begins at the worker's number, takes every sixth iteration, and each of them is for itself."""
    begins = isinstance(loop.start, Local) and loop.start.name == worker and loop.step == NUM_WORKERS
    return begins and stands_alone(loop)


def stands_alone(loop: For) -> bool:
    """True if each iteration of a loop is for itself: no variable goes from one to the next, and none ends the loop."""
    plain = all(isinstance(s, Assign | StoreStmt | Evaluate | IfStmt | For) for s in walk(loop.body))
    return plain and not loop.lanes and carries_nothing(loop)
