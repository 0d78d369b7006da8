"""Refusals and failures in the form of OpenAI's interface, with their HTTP codes."""

from __future__ import annotations

from typing import Any

from abele.errors import AbeleError
from abele.llm.chat import ChatTemplateError
from abele.llm.generation.requests import RequestError
from abele.llm.tokenizer import TokenizerError

INVALID = "invalid_request_error"
SERVER = "server_error"
RATE = "rate_limit_error"


class ApiError(AbeleError):
    """A request that is not answered with text.

    Args:
        status: HTTP code.
        message: One line for the client.
        param: Field of the body that is wrong.
        code: Word for programs, as ``model_not_found``.
        kind: Class of problem in OpenAI's words.
        retry_after: Seconds until another try makes sense.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = INVALID,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, at=param)
        self.status, self.param, self.code, self.kind, self.retry_after = status, param, code, kind, retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object that says it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def problem_of(error: AbeleError) -> ApiError:
    """The answer to an error that a request met."""
    if isinstance(error, ApiError):
        return error
    because = f": {error.because}" if error.because else ""
    remedy = f" (try: {error.remedy})" if error.remedy else ""
    message = f"{error.message}{because}{remedy}"
    if isinstance(error, RequestError):
        return ApiError(400, message, param=error.at)
    if isinstance(error, ChatTemplateError):
        return ApiError(400, message, param="messages", code="chat_template")
    if isinstance(error, TokenizerError):
        return ApiError(400, message, param="prompt", code="tokenizer")
    return ApiError(500, message, kind=SERVER, code=type(error).__name__)


def full(retry_after: int, waiting: int) -> ApiError:
    """A queue without room."""
    message = f"{waiting} continuations wait for their turn already; try again in {retry_after} s"
    return ApiError(429, message, kind=RATE, code="queue_full", retry_after=retry_after)


def stopping() -> ApiError:
    """A server that is about to end."""
    return ApiError(503, "the server is stopping", kind=SERVER, code="stopping", retry_after=5)


def timed_out(seconds: float) -> ApiError:
    """A request that took too long."""
    return ApiError(504, f"the request took longer than {seconds:g} s", kind=SERVER, code="timeout")


def unread(tokens: int) -> ApiError:
    """A reader who lets tokens pile up."""
    message = f"more than {tokens} tokens were left unread, and the request was given up"
    return ApiError(500, message, kind=SERVER, code="slow_reader")


def failed() -> ApiError:
    """A failure that says nothing about the request; the server's log has it."""
    return ApiError(500, "the server failed to generate; its log says more", kind=SERVER, code="internal_error")


def broken() -> ApiError:
    """A generator that fails at every step."""
    message = "the generator failed again and again and is given up; the server's log says more"
    return ApiError(503, message, kind=SERVER, code="generator_failed")
