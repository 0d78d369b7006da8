"""The application: routes, errors as JSON, and a line of log per request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abele import __version__
from abele.errors import AbeleError
from abele.llm.serving import pages
from abele.llm.serving.answers import ChatAnswer, Json, TextAnswer
from abele.llm.serving.calls import TextCall, chat_call, completion_call, unknown_model
from abele.llm.serving.event_stream import CallFigures, JsonResponse, StreamedAnswer, WholeAnswer, refusal
from abele.llm.serving.guard import ServingGuard
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.metrics import CONTENT_TYPE, ServingMetrics
from abele.llm.serving.problems import ApiError, failed, problem_of, stopping
from abele.llm.serving.request_body import BodyTooLargeError, ClientGone, read_object
from abele.llm.serving.served import ServedModel
from abele.llm.serving.worker import GenerationWorker
from abele.words import visible

_LOG = logging.getLogger("abele.serving")
_LINGER_SECONDS = 2.0
"""Time for a client to stop sending a refused body: closed at once, it would not read the answer."""
_PREPARING = 2
"""Prompts that are tokenised at a time: long ones take a while, and the generator's thread needs a core as well."""

Reader = Callable[[Json, ServedModel, ServingLimits], TextCall]


def serving_app(
    model: ServedModel,
    worker: GenerationWorker,
    *,
    key: str | None = None,
    loopback: bool = True,
    origins: Sequence[str] = (),
) -> Starlette:
    """The application that serves a model.

    Args:
        model: The model.
        worker: The worker that drives its generator; it starts and ends with the application.
        key: Key that clients must bring.
        loopback: True to answer under the loopback's names alone.
        origins: Origins of other sites whose pages may ask.
    """
    service = _Service(model, worker)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(worker.close)

    middleware = [Middleware(RequestLog, metrics=service.metrics)]
    if origins:
        sites, words = list(origins), ["authorization", "content-type"]
        cors = Middleware(CORSMiddleware, allow_origins=sites, allow_methods=["GET", "POST"], allow_headers=words)
        middleware.append(cors)
    guard = functools.partial(
        ServingGuard, key=key, loopback=loopback, origins=origins, content_policy=pages.content_policy()
    )
    return Starlette(
        routes=[
            Route("/v1/models", service.models),
            Route("/v1/models/{name:path}", service.model_named),
            Route("/v1/completions", _RunningCall(service, completion_call, TextAnswer), methods=["POST"]),
            Route("/v1/chat/completions", _RunningCall(service, chat_call, ChatAnswer), methods=["POST"]),
            Route("/health", service.health),
            Route("/metrics", service.figures),
            Route("/abele/machine", service.machine),
            Route("/", service.page),
            Route("/web/{name:path}", functools.partial(service.module, "web")),
            Route("/chat/{name:path}", functools.partial(service.module, "chat")),
        ],
        middleware=[*middleware, Middleware(guard)],
        exception_handlers={HTTPException: _http_problem, ApiError: _api_problem},
        lifespan=lifespan,
    )


class _Service:
    """Handlers that share a model, its worker and the figures."""

    def __init__(self, model: ServedModel, worker: GenerationWorker) -> None:
        self.model, self.worker = model, worker
        self.metrics = ServingMetrics()
        self.preparing = asyncio.Semaphore(_PREPARING)

    def _listed(self) -> Json:
        return {"id": self.model.name, "object": "model", "created": self.model.created, "owned_by": "abele"}

    async def models(self, request: Request) -> Response:
        del request
        return JsonResponse({"object": "list", "data": [self._listed()]})

    async def model_named(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self.model.name:
            raise unknown_model(name, self.model)
        return JsonResponse(self._listed())

    async def health(self, request: Request) -> Response:
        del request
        worker = self.worker
        status = "failed" if worker.broken is not None else "stopping" if worker.is_stopping else "ok"
        engine = worker.engine
        body = {"status": status, "running": engine.num_running, "waiting": engine.num_waiting}
        return JsonResponse(body, 200 if status == "ok" else 503)

    async def figures(self, request: Request) -> Response:
        del request
        return PlainTextResponse(self.metrics.text(self.worker), media_type=CONTENT_TYPE)

    async def machine(self, request: Request) -> Response:
        """The machine and a decode step on it, for the page."""
        del request
        account = await asyncio.to_thread(self.model.account)
        limits = self.worker.limits
        body: Json = {
            "model": self.model.name,
            "machine": self.model.machine,
            "positions": self.model.positions,
            "chat": self.model.chat is not None,
            "max_tokens": limits.max_tokens,
            "version": __version__,
            "step": None if account is None else account.to_json(),
        }
        return JsonResponse(body)

    async def page(self, request: Request) -> Response:
        del request
        return HTMLResponse(pages.page())

    async def module(self, folder: str, request: Request) -> Response:
        text = pages.module_text(folder, request.path_params["name"])
        if text is None:
            raise HTTPException(404)
        return PlainTextResponse(text, media_type="text/javascript")


class _RunningCall:
    """The route of one kind of call; an application of its own, since bodies are read with a limit.

    Args:
        service: Model, worker and figures.
        reader: Reads a body as a call.
        form: Form of the answer.
    """

    def __init__(self, service: _Service, reader: Reader, form: type[TextAnswer]) -> None:
        self.service, self.reader, self.form = service, reader, form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        worker = self.service.worker
        try:
            if worker.is_stopping:
                raise stopping()
            response = await self._response(scope, receive)
        except ClientGone:
            scope["abele.end"] = "client left"
            return
        except BodyTooLargeError as problem:
            await _refuse_and_linger(problem, receive, send)
            return
        except AbeleError as error:
            response = refusal(problem_of(error))
        except Exception:
            # Whatever a body brought about: the client gets JSON, the log the rest.
            _LOG.exception("a request failed")
            response = refusal(failed())
        await response(scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        service = self.service
        body = await read_object(scope, receive, service.worker.limits)
        call = self.reader(body, service.model, service.worker.limits)
        async with service.preparing:
            requests = await asyncio.to_thread(call.requests, service.model, service.worker.limits)
        answer = self.form(service.model, call, requests)
        feed = service.worker.submit(requests)
        form = StreamedAnswer if call.stream else WholeAnswer
        return form(service.worker, feed, answer, functools.partial(self._noted, scope))

    def _noted(self, scope: Scope, figures: CallFigures) -> None:
        self.service.metrics.add(figures)
        scope["abele.figures"] = figures


async def _refuse_and_linger(problem: ApiError, receive: Receive, send: Send) -> None:
    """Refuse a body that still comes, and throw away what comes for a moment, so that the answer is read."""
    response = refusal(problem)
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while (message := await receive()).get("more_body", False):
                del message
    await send({"type": "http.response.body", "body": b""})


def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, method = visible(request.url.path)[:80], visible(request.method)[:20]
    texts = {404: f"there is nothing at {path}", 405: f"{path} does not take {method}"}
    response = refusal(ApiError(error.status_code, texts.get(error.status_code, error.detail), code="http_error"))
    response.headers.update(error.headers or {})
    return response


def _api_problem(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, ApiError)
    return refusal(error)


class RequestLog:
    """A line of log per request, and counts by route and code.

    Args:
        app: The application.
        metrics: Counts of answers.
    """

    def __init__(self, app: ASGIApp, metrics: ServingMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            status = message["status"] if message["type"] == "http.response.start" else status
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.answers[_route(scope, status), status] += 1
            _LOG.info("%s", _line(scope, status, time.monotonic() - start))


def _route(scope: Scope, status: int) -> str:
    """Pattern of the route: labels must not be as many as the paths that strangers think of."""
    if status == 404 or ("route" not in scope and "endpoint" not in scope):
        return "none"
    return scope["path"] if scope["path"].startswith(("/v1/c", "/health", "/metrics", "/abele/")) else "other"


def _line(scope: Scope, status: int, seconds: float) -> str:
    client = (scope.get("client") or ("-",))[0]
    words = [client, visible(scope["method"])[:20], visible(scope["path"])[:120], str(status), f"{seconds:.3f}s"]
    figures: CallFigures | None = scope.get("abele.figures")
    if figures is not None:
        first = figures.first_token_seconds
        words += [f"prompt={figures.prompt_tokens}", f"made={figures.completion_tokens}"]
        words += ["first=-" if first is None else f"first={first:.3f}s", f"end={figures.end.replace(' ', '_')}"]
    elif "abele.end" in scope:
        words.append(f"end={scope['abele.end'].replace(' ', '_')}")
    return " ".join(words)
