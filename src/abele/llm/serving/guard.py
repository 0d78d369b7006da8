"""Guard of the server: keys, names of the loopback, requests that pages of other sites send.

A server on the loopback is within reach of every page that the user's browser shows. So it answers under the loopback's
names alone, which a name that somebody made point there is not, and refuses what a browser sends for another site.
Programs send neither header.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abele.llm.serving.event_stream import refusal
from abele.llm.serving.problems import ApiError
from abele.viewer.guard import LOOPBACK

OPEN_PATHS = ("/", "/health")
OPEN_FOLDERS = ("/web/", "/chat/")
"""Open without a key: the page, which asks for it, and the server's health."""


class ServingGuard:
    """Lets requests through that may be answered.

    Args:
        app: Application to guard.
        key: Key that requests must bring; None for none.
        loopback: True to answer under the loopback's names alone.
        origins: Origins of other sites whose pages may ask.
        content_policy: Content policy of the page.
    """

    def __init__(
        self, app: ASGIApp, *, key: str | None, loopback: bool, origins: Collection[str], content_policy: str
    ) -> None:
        self._app, self._key, self._loopback = app, key, loopback
        self._origins, self._policy = frozenset(origins), content_policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Content-Security-Policy"] = self._policy
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        problem = self._problem(scope["path"], scope["method"], Headers(scope=scope))
        if problem is not None:
            await refusal(problem)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _problem(self, path: str, method: str, headers: Headers) -> ApiError | None:
        origin = headers.get("origin")
        host = headers.get("host", "")
        if self._loopback and _name(host) not in LOOPBACK:
            return ApiError(421, "this server answers under localhost and 127.0.0.1 only", code="wrong_host")
        is_own = origin is None or origin.partition("://")[2] == host
        if not is_own and origin not in self._origins:
            return ApiError(403, "pages of other origins are not answered", code="wrong_origin")
        if is_own and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return ApiError(403, "pages of other sites are not answered", code="wrong_origin")
        if self._key is None or path in OPEN_PATHS or path.startswith(OPEN_FOLDERS) or method == "OPTIONS":
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self._key.encode()):
            return None
        return ApiError(401, "the key is missing or wrong", code="invalid_api_key")


def _name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
