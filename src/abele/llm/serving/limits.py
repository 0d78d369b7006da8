"""Limits of a server: what one client may ask for, and how long anything takes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from abele.errors import InvalidOptionError


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """Limits of a server.

    Attributes:
        body_bytes: Largest body of a request; more is refused before it is read.
        prompt_tokens: Longest prompt; None for as long as the context.
        max_tokens: Most tokens per continuation that a request may ask for; None for as many as the context has room.
        sequences: Most continuations of one request: prompts times ``n``.
        queue: Continuations that may wait for a slot; more are refused with 429.
        unread_tokens: Tokens that wait for a reader; who leaves more unread loses the request.
        body_seconds: Longest time that a body may take to arrive.
        request_seconds: Longest time from a request's arrival to its last token.
        stall_seconds: Longest time that a reader may take nothing at all.
        grace_seconds: Time that running requests get to finish when the server stops.
    """

    body_bytes: int = 4 << 20
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    sequences: int = 32
    queue: int = 256
    unread_tokens: int = 4096
    body_seconds: float = 30.0
    request_seconds: float = 600.0
    stall_seconds: float = 60.0
    grace_seconds: float = 20.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("queue", "grace_seconds") else 1 if isinstance(value, int) else 1e-3
            if value is not None and not least <= value < float("inf"):
                raise InvalidOptionError(f"limit {field.name} is {value}, must be at least {least}")
