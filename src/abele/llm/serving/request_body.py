"""Bodies of requests: read up to a limit, never held whole beyond it, and taken as JSON objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NoReturn

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.problems import ApiError


class BodyTooLargeError(ApiError):
    """A body above the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"the body is larger than {limit:,} bytes", code="body_too_large")


class ClientGone(Exception):  # noqa: N818 - nobody is there to be told of an error
    """A client that closed its connection."""


async def read_object(scope: Scope, receive: Receive, limits: ServingLimits) -> dict[str, Any]:
    """The JSON object in a request's body.

    Raises:
        ApiError: It is too large, too slow, of another type, or no JSON object.
        ClientGone: The client left before it was whole.
    """
    headers = Headers(scope=scope)
    given = headers.get("content-type", "").split(";")[0].strip().lower()
    if given != "application/json":
        message = f"the body is {given[:60] or 'of no type'}, must be application/json"
        raise ApiError(415, message, code="unsupported_media_type")
    declared = headers.get("content-length", "0")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limits.body_bytes):
        raise BodyTooLargeError(limits.body_bytes)
    try:
        async with asyncio.timeout(limits.body_seconds):
            body = await _read(receive, limits.body_bytes)
    except TimeoutError:
        message = f"the body took longer than {limits.body_seconds:g} s to arrive"
        raise ApiError(408, message, code="body_timeout") from None
    return _object(body)


async def _read(receive: Receive, most: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > most:
            raise BodyTooLargeError(most)
        if not message.get("more_body", False):
            return bytes(body)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_without_repeats)
    except ApiError:
        raise
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise ApiError(400, f"the body is no JSON: {str(error)[:120]}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, f"the body is a JSON {_kind(found)}, must be an object", code="invalid_json")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(_repeats([name for name, _ in pairs]))
        raise ApiError(400, f"{twice[:60]!r} is given twice", param=twice[:60], code="invalid_json")
    return found


def _repeats(names: list[str]) -> Iterator[str]:
    seen = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _kind(value: object) -> str:
    kinds = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")
