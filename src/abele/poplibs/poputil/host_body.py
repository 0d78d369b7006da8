"""What the host runs in place of the body of a library call that has no kernel."""

from __future__ import annotations

from abele.graph import LibraryCall
from abele.graph.program import Sequence


def note_host(prog: Sequence, host_body: Sequence | None) -> None:
    """Give the library call that ``prog`` ends with what the host may run in place of its body."""
    call = prog.steps[-1]
    assert isinstance(call, LibraryCall)
    call.host_body = host_body
