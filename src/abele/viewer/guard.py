"""Guard of the server: it answers the loopback with a token alone, and lets the page load nothing from elsewhere."""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abele.viewer.pages import hashed

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names under which the page may be asked for."""


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


def policy(inline_script: str, inline_style: str) -> str:
    """The content policy of the page: own files only, no frames, no forms, one inline script and style, by hash."""
    return (
        f"default-src 'none'; script-src 'self' {hashed(inline_script)}; style-src {hashed(inline_style)}; "
        "img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class RequestGuard:
    """Lets requests through that come from this machine's page, and refuses the others in a line.

    The token comes once in the address and then lives in a cookie. Cookies ignore ports, so that its name holds the
    port: two viewers do not disturb each other. A page of another origin may neither read nor send, and a name that
    somebody made point to the loopback is no name of ours.

    Args:
        app: Application to guard.
        token: The token.
        port: The port that is listened on.
        content_policy: As :func:`policy` gives it.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, content_policy: str) -> None:
        self._app = app
        self._token = token
        self._cookie = f"abele-{port}"
        self._hosts = {f"{name}:{port}" for name in LOOPBACK} | ({*LOOPBACK} if port == 80 else set())
        self._policy = content_policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal(headers)
        if refused is not None:
            await refused(scope, receive, self._guarded(send))
            return
        given = QueryParams(scope["query_string"]).get("token")
        if given is not None and secrets.compare_digest(given.encode(), self._token.encode()):
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            await answer(scope, receive, self._guarded(send))
            return
        if not secrets.compare_digest(self._held(headers).encode(), self._token.encode()):
            refusal = PlainTextResponse("Open the address that abele view printed: it holds the token.", 403)
            await refusal(scope, receive, self._guarded(send))
            return
        await self._app(scope, receive, self._guarded(send))

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        if headers.get("host", "") not in self._hosts:
            return PlainTextResponse("This server answers under localhost and 127.0.0.1 only.", 421)
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return PlainTextResponse("Pages of other origins are not answered.", 403)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return PlainTextResponse("Pages of other sites are not answered.", 403)
        return None

    def _held(self, headers: Headers) -> str:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return ""
        return cookies[self._cookie].value if self._cookie in cookies else ""

    def _guarded(self, send: Send) -> Send:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = self._policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        return guarded
