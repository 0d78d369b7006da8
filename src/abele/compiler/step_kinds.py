"""Step kinds: each leaf of the program tree, in one word."""

from __future__ import annotations

KINDS = {
    "execute": "run a compute set",
    "copy": "copy between views",
    "cross_replica": "copy between replicas",
    "stream_in": "copy from a host stream",
    "stream_out": "copy to a host stream",
    "remote_in": "copy from a remote buffer",
    "remote_out": "copy to a remote buffer",
    "host_call": "call a function of the host",
    "print": "print a tensor",
    "decide": "look at the predicate of a loop, branch or switch",
    "abort": "stop the program, perhaps on a condition",
    "sync": "a barrier",
    "timer_start": "read the cycle counter before a timed program",
    "timer_read": "read the cycle counter and store what it says",
    "mode": "set the floating-point behaviour",
    "seeds": "read or set the random seeds of the workers",
    "assume": "a promise to the compiler",
    "undef": "end the life of a value",
}
"""Kinds of steps, with their meanings."""

STREAMS = ("stream_in", "stream_out")
HOST_KINDS = (*STREAMS, "remote_in", "remote_out", "host_call", "print")
"""Kinds that are one transfer between tiles and other parts of the system."""
CONTROL_KINDS = ("decide", "abort", "sync", "timer_start", "timer_read", "mode", "seeds")
"""Kinds that steer, or touch the tiles' registers."""
NEUTRAL = ("undef", "assume")
"""Kinds that do nothing on the machine: they do not come between two stream copies."""


def partner_of(kind: str) -> str:
    """Partner of a kind of step beside the tiles of its replica; empty for none."""
    if kind == "cross_replica":
        return "replicas"
    if kind in ("remote_in", "remote_out"):
        return "streaming memory"
    return "host" if kind in HOST_KINDS else ""
