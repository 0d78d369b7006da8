"""Drop unread stores into the plan's own spaces, and tasks that are left without stores."""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.tasks.program import TaskProgram


def drop_unread(program: TaskProgram) -> TaskProgram:
    """Remove stores to spaces that only the plan sees and that nothing reads afterwards, and tasks without stores."""
    read: set[int] = set()
    kept = []
    for task in reversed(program.tasks):
        puts = tuple(p for p in task.puts if program.spaces[p.space].pinned or p.space in read)
        if puts:
            task = task if len(puts) == len(task.puts) else replace(task, puts=puts)
            read |= task.reads
            kept.append(task)
    return replace(program, tasks=tuple(reversed(kept)))
