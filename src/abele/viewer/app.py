"""The server of the page: its files, and answers about reports."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from abele import __version__
from abele.errors import AbeleError
from abele.viewer import pages
from abele.viewer.answers import answer
from abele.viewer.guard import RequestGuard, policy
from abele.viewer.open_reports import Shelf, readable, unexpected
from abele.viewer.params import Params
from abele.viewer.wire import pack
from abele.words import visible

_LOG = logging.getLogger("abele.viewer")
_IMMUTABLE = "private, max-age=31536000, immutable"


def viewer_app(shelf: Shelf, token: str, port: int) -> Starlette:
    """The application that serves a shelf of reports.

    Args:
        shelf: The reports.
        token: Whoever asks must bring it.
        port: The port that is listened on, by which hosts and cookies are told apart.
    """

    def page(request: Request) -> Response:
        del request
        return HTMLResponse(pages.frame("Abele"))

    def web(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in pages.module_names():
            return PlainTextResponse("There is no such module.", 404)
        return PlainTextResponse((pages.WEB / name).read_text("utf-8"), media_type=pages.TYPES[".js"])

    def reports(request: Request) -> Response:
        del request
        changed = shelf.changed()
        listed = [opened.listed | {"changed": opened.key in changed} for opened in shelf]
        return JSONResponse({"reports": listed, "version": __version__})

    def reload(request: Request) -> Response:
        try:
            opened = shelf.reload(request.path_params["key"])
        except AbeleError as error:
            return JSONResponse(readable(error), 409)
        return JSONResponse({"key": opened.key, "stamp": opened.stamp})

    def data(request: Request) -> Response:
        try:
            opened = shelf[request.path_params["key"]]
            opened.check()
            packed = pack(answer(opened, request.path_params["question"], Params(request.query_params)))
        except AbeleError as error:
            return JSONResponse(readable(error), 400)
        except Exception as error:
            # Reports come from anybody: what one of them makes fail leaves the other views alone.
            _LOG.exception("the viewer could not answer %s", visible(request.path_params["question"])[:60])
            return JSONResponse(unexpected(error), 500)
        headers = {"Cache-Control": _IMMUTABLE if request.query_params.get("stamp") == opened.stamp else "no-store"}
        return Response(packed, media_type="application/octet-stream", headers=headers)

    content_policy = policy(pages.import_map(), pages.style())
    return Starlette(
        routes=[
            Route("/", page),
            Route("/web/{name:path}", web),
            Route("/reports", reports),
            Route("/reload/{key}", reload, methods=["POST"]),
            Route("/data/{key}/{question}", data),
        ],
        middleware=[Middleware(RequestGuard, token=token, port=port, content_policy=content_policy)],
    )
