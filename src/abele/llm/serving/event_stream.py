"""Responses that follow a feed: server-sent events, or one JSON object at the end.

Both watch the client: one that closes its connection cancels its sequences, also while a write waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from abele.llm.generation.events import Event
from abele.llm.serving.answers import TextAnswer
from abele.llm.serving.problems import ApiError, problem_of
from abele.llm.serving.worker import GenerationWorker, TokenFeed

_QUIET_SECONDS = 10.0
"""Silence after which a comment keeps a stream's connection open through proxies."""
DONE = b"data: [DONE]\n\n"
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


def json_bytes(data: Any) -> bytes:
    """JSON in ASCII."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")


class JsonResponse(Response):
    """A JSON object."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Its bytes."""
        return json_bytes(content)


def refusal(problem: ApiError) -> Response:
    """The response that tells of a problem."""
    headers = {} if problem.retry_after is None else {"Retry-After": str(problem.retry_after)}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JsonResponse(problem.body, problem.status, headers)


class FollowedFeed(Response):
    """The response to a call whose requests are queued.

    Args:
        worker: The worker that drives the generator.
        feed: Events of the call.
        answer: Form of the answer, which takes the events.
        noted: Called once at the end with the figures of the call, for the log and the metrics.
    """

    def __init__(
        self, worker: GenerationWorker, feed: TokenFeed, answer: TextAnswer, noted: Callable[[CallFigures], None]
    ) -> None:
        super().__init__()
        self.worker, self.feed, self.answer, self.noted = worker, feed, answer, noted
        self.figures = CallFigures(answer.prompt_tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and let go of the feed whatever happens."""
        answering = asyncio.ensure_future(self.respond(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            # The end of an answer and of the connection may come together.
            if answering.done():
                answering.result()
                return
            self.figures.end = "client left"
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
        finally:
            for task in (answering, leaving):
                task.cancel()
            is_whole = self.figures.end == "done"
            self.worker.release(self.feed, self.figures.seconds if is_whole else None)
            self.figures.completion_tokens = self.answer.completion_tokens
            self.noted(self.figures)

    async def respond(self, send: Send) -> None:
        """Send the answer."""
        raise NotImplementedError

    async def events(self) -> list[tuple[int, Event]]:
        """Events since the last time; none at the end.

        Raises:
            ApiError: The request was given up, took too long, or went wrong.
        """
        left = self.worker.limits.request_seconds - self.figures.seconds
        try:
            async with asyncio.timeout(left):
                events = await self.feed.take()
        except TimeoutError:
            raise self.worker.expired() from None
        if any(event.ids for _, event in events):
            self.figures.note_first_token()
        for _, event in events:
            if event.finish_reason == "error" and event.ticket.error is not None:
                raise problem_of(event.ticket.error)
            if event.finish_reason == "cancelled":
                raise ApiError(500, "the request was cancelled", kind="server_error", code="cancelled")
        return events


class CallFigures:
    """Figures of one call, for the log and the metrics."""

    def __init__(self, prompt_tokens: int) -> None:
        self.prompt_tokens, self.completion_tokens = prompt_tokens, 0
        self.first_token_seconds: float | None = None
        self.end = "cut off"
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the call was queued."""
        return time.monotonic() - self._start

    def note_first_token(self) -> None:
        """The first token is here, unless it was before."""
        if self.first_token_seconds is None:
            self.first_token_seconds = self.seconds


class WholeAnswer(FollowedFeed):
    """One JSON object when all continuations have ended."""

    async def respond(self, send: Send) -> None:
        """Collect, then send."""
        try:
            while events := await self.events():
                for prompt, event in events:
                    self.answer.add(prompt, event)
            response: Response = JsonResponse(self.answer.whole())
            self.figures.end = "done"
        except ApiError as problem:
            self.figures.end = problem.code or "error"
            response = refusal(problem)
        await response({"type": "http"}, _nothing, send)


class StreamedAnswer(FollowedFeed):
    """Server-sent events, one per token or few, closed by ``[DONE]``."""

    async def respond(self, send: Send) -> None:
        """Send chunks as they come."""
        try:
            await self._respond(send)
        except StalledReader:
            self.figures.end = "stalled"

    async def _respond(self, send: Send) -> None:
        try:
            # The first news decides the code: a request that fails before it has text fails with a code of its own.
            events = await self._first(send)
        except ApiError as problem:
            self.figures.end = problem.code or "error"
            await refusal(problem)({"type": "http"}, _nothing, send)
            return
        try:
            while events:
                chunks = [chunk for prompt, event in events for chunk in self.answer.add(prompt, event)]
                await self._send(send, _lines(chunks))
                events = await self._next(send)
            self.figures.end = "done"
            ending = _lines(self.answer.closing()) + DONE
        except ApiError as problem:
            self.figures.end = problem.code or "error"
            ending = _lines([problem.body])
        await self._send(send, ending, more=False)

    async def _first(self, send: Send) -> list[tuple[int, Event]]:
        reading = asyncio.ensure_future(self.events())
        try:
            done, _ = await asyncio.wait({reading}, timeout=_QUIET_SECONDS)
            if done and reading.exception() is not None:
                raise reading.exception() or AssertionError
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send(send, _lines(self.answer.opening()))
            return await self._told(send, reading)
        finally:
            reading.cancel()

    async def _next(self, send: Send) -> list[tuple[int, Event]]:
        reading = asyncio.ensure_future(self.events())
        try:
            return await self._told(send, reading)
        finally:
            reading.cancel()

    async def _told(self, send: Send, reading: asyncio.Future[list[tuple[int, Event]]]) -> list[tuple[int, Event]]:
        """The next events, with comments while they take long."""
        while True:
            done, _ = await asyncio.wait({reading}, timeout=_QUIET_SECONDS)
            if done:
                return reading.result()
            await self._send(send, b": waiting\n\n")

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        try:
            async with asyncio.timeout(self.worker.limits.stall_seconds):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise StalledReader from None


class StalledReader(Exception):  # noqa: N818 - an end of a stream, which nobody is told of
    """A client that takes nothing off its connection."""


def _lines(chunks: Iterable[Any]) -> bytes:
    return b"".join(b"data: " + json_bytes(chunk) + b"\n\n" for chunk in chunks)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
