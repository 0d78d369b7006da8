"""A cache of sessions by signature: one function, compiled once for each form of its arguments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from abele.errors import InvalidOptionError
from abele.session.session import Session
from abele.session.signature import Signature


class SessionCache:
    """Sessions of one function by signature; the one that was not used for longest makes room for a new one.

    Args:
        compile: Makes the session for a signature. Give all of them the same :class:`SharedArrays`, and they go on
            from each other's weights and optimiser state.
        most: Sessions that are kept.

    Attributes:
        hits: Calls that found their session.
        misses: Calls that had to compile.
    """

    def __init__(self, compile: Callable[[Signature], Session], *, most: int = 8) -> None:
        if most < 1:
            raise InvalidOptionError(f"a cache keeps at least one session, not {most}")
        self._compile = compile
        self._most = most
        self._sessions: OrderedDict[Signature, Session] = OrderedDict()
        self.hits = self.misses = 0

    def __getitem__(self, signature: Signature) -> Session:
        """The session of a signature, compiled if there is none."""
        found = self._sessions.get(signature)
        if found is not None:
            self.hits += 1
            self._sessions.move_to_end(signature)
            return found
        self.misses += 1
        made = self._compile(signature)
        while len(self._sessions) >= self._most:
            self._sessions.popitem(last=False)[1].close()
        self._sessions[signature] = made
        return made

    def __contains__(self, signature: Signature) -> bool:
        return signature in self._sessions

    def __iter__(self) -> Iterator[Signature]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Close all sessions; their weights are brought to the host."""
        while self._sessions:
            self._sessions.popitem()[1].close()
