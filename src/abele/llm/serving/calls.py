"""Calls of the two routes that make text: what their bodies say, and the requests that come of it.

``{"prompt": ["Once", "Twice"], "n": 2, "max_tokens": 8}`` is two requests of two continuations each. Fields of OpenAI's
interface are of three kinds: served, without effect on the text (``user``, ``metadata``), and refused unless they hold
the value that changes nothing (``logit_bias``, ``tools``). Fields that the interface does not have are refused by name,
but for ``top_k``, ``min_p`` and ``repetition_penalty``, which are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from abele.llm.generation.requests import Request
from abele.llm.generation.text import encoded
from abele.llm.serving.fields import BodyFields, wrong
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.problems import ApiError
from abele.llm.serving.served import ServedModel

_WITHOUT_EFFECT = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
)
_TOOLS = ("tools", "tool_choice", "functions", "function_call", "audio", "prediction", "web_search_options")
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_MOST_TOP = 20
_MOST_MESSAGES = 4096
_COMPLETION_TOKENS = 16
"""Tokens of a completion that names no limit, as in OpenAI's interface."""


@dataclass(frozen=True, kw_only=True)
class TextCall:
    """Wishes of a client: prompts and settings.

    Attributes:
        prompts: Prompts: texts, or token ids. A chat has one.
        messages: Messages of a chat; empty for completions.
        settings: Fields of every request.
        stream: True if pieces are sent as they come.
        include_usage: True if a stream ends with the counts of tokens.
        echo: True if the prompt is part of the text.
    """

    prompts: tuple[str | tuple[int, ...], ...] = ()
    messages: tuple[dict[str, str], ...] = ()
    settings: dict[str, Any]
    stream: bool = False
    include_usage: bool = False
    echo: bool = False

    def requests(self, model: ServedModel, limits: ServingLimits) -> list[Request]:
        """A request per prompt. Long texts take a while: not for the event loop's thread."""
        if self.messages:
            assert model.chat is not None
            return [self._request(tuple(model.chat(self.messages)), limits, "messages")]
        return [self._request(_ids(model, prompt), limits, "prompt") for prompt in self.prompts]

    def _request(self, ids: tuple[int, ...], limits: ServingLimits, param: str) -> Request:
        if limits.prompt_tokens is not None and len(ids) > limits.prompt_tokens:
            message = f"the prompt has {len(ids):,} tokens; this server takes {limits.prompt_tokens:,}"
            raise ApiError(400, message, param=param, code="context_length_exceeded")
        return Request(prompt=ids, **self.settings)


def completion_call(body: dict[str, Any], model: ServedModel, limits: ServingLimits) -> TextCall:
    """The call that a body of ``/v1/completions`` makes.

    Raises:
        ApiError: A field is wrong, unknown or not served.
    """
    fields = BodyFields(body)
    _named(fields, model)
    prompts = _prompts(fields.take("prompt"))
    settings = _settings(fields, model, limits)
    most = fields.whole("max_tokens", 1, 1 << 31)
    settings["max_tokens"] = _capped(_COMPLETION_TOKENS if most is None else most, "max_tokens", most, limits)
    settings["logprobs"] = fields.whole("logprobs", 0, min(_MOST_TOP, max(5, model.top)))
    echo, stream = fields.flag("echo"), fields.flag("stream")
    if echo and settings["logprobs"] is not None:
        message = "logprobs with echo needs those of the prompt, which are not kept"
        raise ApiError(400, message, param="echo", code="unsupported_parameter")
    include_usage = _stream_options(fields, stream)
    fields.only("suffix", "")
    fields.only("best_of", 1, settings["n"])
    fields.done()
    _check_size(len(prompts) * settings["n"], limits)
    return TextCall(prompts=prompts, settings=settings, stream=stream, include_usage=include_usage, echo=echo)


def chat_call(body: dict[str, Any], model: ServedModel, limits: ServingLimits) -> TextCall:
    """The call that a body of ``/v1/chat/completions`` makes.

    Raises:
        ApiError: A field is wrong, unknown or not served, or the model has no chat template.
    """
    fields = BodyFields(body)
    _named(fields, model)
    if model.chat is None:
        message = f"{model.name} has no chat template; /v1/completions takes its prompts"
        raise ApiError(400, message, param="messages", code="no_chat_template")
    messages = _messages(fields.take("messages"))
    settings = _settings(fields, model, limits)
    older, newer = fields.whole("max_tokens", 1, 1 << 31), fields.whole("max_completion_tokens", 1, 1 << 31)
    name = "max_tokens" if newer is None else "max_completion_tokens"
    most = older if newer is None else newer
    settings["max_tokens"] = _capped(most, name, most, limits)
    top, wanted = fields.whole("top_logprobs", 0, _MOST_TOP), fields.flag("logprobs")
    if top is not None and not wanted:
        raise ApiError(400, "top_logprobs needs logprobs to be true", param="top_logprobs", code="invalid_value")
    settings["logprobs"] = (top or 0) if wanted else None
    stream = fields.flag("stream")
    include_usage = _stream_options(fields, stream)
    for tool in _TOOLS:
        fields.only(tool, "none") if tool in ("tool_choice", "function_call") else fields.only(tool)
    fields.only("response_format", {"type": "text"})
    fields.only("modalities", ["text"])
    fields.only("reasoning_effort", "none")
    fields.only("verbosity", "medium")
    fields.done()
    _check_size(settings["n"], limits)
    return TextCall(messages=messages, settings=settings, stream=stream, include_usage=include_usage)


def _named(fields: BodyFields, model: ServedModel) -> None:
    name = fields.text("model")
    if name is not None and name != model.name:
        raise unknown_model(name, model)


def unknown_model(name: str, model: ServedModel) -> ApiError:
    """The answer to a model that is not here."""
    message = f"model {name[:60]!a} is not here; this server has {model.name}"
    return ApiError(404, message, param="model", code="model_not_found")


def _settings(fields: BodyFields, model: ServedModel, limits: ServingLimits) -> dict[str, Any]:
    n = fields.whole("n", 1, limits.sequences)
    fields.only("presence_penalty", 0)
    fields.only("frequency_penalty", 0)
    fields.only("logit_bias")
    fields.without_effect(_WITHOUT_EFFECT)
    return {
        "n": 1 if n is None else n,
        "temperature": fields.number("temperature", 1.0, 0.0, 2.0),
        "top_p": fields.number("top_p", 1.0, 0.0, 1.0),
        "top_k": fields.whole("top_k", 0, 1 << 31) or 0,
        "min_p": fields.number("min_p", 0.0, 0.0, 1.0),
        "repetition_penalty": fields.number("repetition_penalty", 1.0, 0.01, 100.0),
        "seed": fields.whole("seed", -(1 << 63), (1 << 63) - 1),
        "stop": fields.texts("stop"),
        "end_ids": model.end_ids,
    }


def _capped(value: int | None, name: str, asked: int | None, limits: ServingLimits) -> int | None:
    """Tokens that are generated at most; what was asked for above the server's limit is refused."""
    cap = limits.max_tokens
    if cap is None:
        return value
    if asked is not None and asked > cap:
        raise ApiError(400, f"{name} is {asked:,}; this server makes at most {cap:,}", param=name)
    return cap if value is None else min(value, cap)


def _check_size(sequences: int, limits: ServingLimits) -> None:
    if sequences > limits.sequences:
        message = f"{sequences} continuations in one request; this server makes at most {limits.sequences}"
        raise ApiError(400, message, param="n", code="too_many_sequences")


def _stream_options(fields: BodyFields, stream: bool) -> bool:
    options = fields.take("stream_options")
    if options is None:
        return False
    if not stream:
        raise ApiError(400, "stream_options needs stream to be true", param="stream_options", code="invalid_value")
    if not isinstance(options, dict):
        raise wrong("stream_options", options, "an object")
    inner = BodyFields(options)
    include_usage = inner.flag("include_usage")
    inner.without_effect(("include_obfuscation",))
    inner.done()
    return include_usage


def _prompts(prompt: Any) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, str) for item in prompt):
            return tuple(prompt)
        if all(_is_id(item) for item in prompt):
            return (tuple(prompt),)
        if all(isinstance(item, list) and all(_is_id(i) for i in item) for item in prompt):
            return tuple(tuple(item) for item in prompt)
    raise wrong("prompt", prompt, "a string, a list of strings, token ids, or a list of lists of them")


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ids(model: ServedModel, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
    return tuple(encoded(model.tokenizer, checked_text(prompt, "prompt")) if isinstance(prompt, str) else prompt)


def _messages(given: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= _MOST_MESSAGES:
        raise wrong("messages", given, f"a list of 1 to {_MOST_MESSAGES} messages")
    return tuple(_message(item, f"messages[{i}]") for i, item in enumerate(given))


def _message(item: Any, place: str) -> dict[str, str]:
    if not isinstance(item, dict):
        raise wrong(place, item, "an object with role and content")
    fields = BodyFields(item)
    role = fields.text("role")
    if role not in _ROLES:
        raise wrong(f"{place}.role", role, "one of " + ", ".join(_ROLES))
    content = _content(fields.take("content"), f"{place}.content")
    fields.without_effect(("name",))
    # What the interface's own answers have beside their text, so that they can be sent back as they came.
    for name in ("refusal", "tool_calls", "function_call", "audio", "annotations"):
        fields.only(name)
    fields.done()
    return {"role": _ROLES[role], "content": content}


def _content(content: Any, place: str) -> str:
    if isinstance(content, str):
        return checked_text(content, place)
    if not isinstance(content, list) or not content:
        raise wrong(place, content, "a string, or a list of parts of text")
    return "".join(_part(part, f"{place}[{i}]") for i, part in enumerate(content))


def _part(part: Any, place: str) -> str:
    if not isinstance(part, dict):
        raise wrong(place, part, "a part of text")
    if part.get("type") != "text":
        raise wrong(f"{place}.type", part.get("type"), "text: this model reads nothing else")
    if not isinstance(part.get("text"), str):
        raise wrong(f"{place}.text", part.get("text"), "a string")
    return checked_text(part["text"], place)


def checked_text(text: str, place: str) -> str:
    """A text without halves of characters, which JSON can hold and UTF-8 cannot.

    Raises:
        ApiError: It has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{place} has half a character (a lone surrogate) at {error.start}"
        raise ApiError(400, message, param=place, code="invalid_value") from None
    return text


def prompt_texts(requests: Sequence[Request], call: TextCall, model: ServedModel) -> list[str]:
    """The prompts as texts, for ``echo``."""
    return [
        prompt if isinstance(prompt, str) else model.tokenizer.decode(list(request.prompt))
        for prompt, request in zip(call.prompts, requests, strict=True)
    ]
