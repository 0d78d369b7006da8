"""Answers in OpenAI's forms: chunks of a stream, whole objects, counts of tokens.

Beside the interface's fields every chunk and answer has ``abele``: the modelled seconds and cycles of the step that its
tokens come from, and the tokens.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from abele import __version__
from abele.llm.generation.events import Completion, Event, TokenLogprob
from abele.llm.generation.requests import Request
from abele.llm.serving.calls import TextCall, prompt_texts
from abele.llm.serving.served import ServedModel

Json = dict[str, Any]


_LEAST_LOGPROB = -9999.0
"""Stands for the logarithm of zero, which JSON does not have; OpenAI's interface writes the same."""


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)


class TextAnswer:
    """The answer to one call, whole or in pieces.

    Args:
        model: The model.
        call: The call.
        requests: Its requests, one per prompt.
    """

    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: ServedModel, call: TextCall, requests: Sequence[Request]) -> None:
        self.model, self.call = model, call
        self.id = f"{self.prefix}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.n = requests[0].n
        self.prompt_tokens = sum(len(request.prompt) for request in requests)
        self.completions = [Completion(index=i) for i in range(len(requests) * self.n)]
        self._texts = prompt_texts(requests, call, model) if call.echo else []

    @property
    def completion_tokens(self) -> int:
        """Tokens made so far."""
        return sum(len(completion.ids) for completion in self.completions)

    def opening(self) -> list[Json]:
        """Chunks before the first token."""
        return [
            self._chunk({"text": text, "index": i * self.n + j, "logprobs": None, "finish_reason": None})
            for i, text in enumerate(self._texts)
            for j in range(self.n)
        ]

    def add(self, prompt: int, event: Event) -> list[Json]:
        """Take an event; the chunks that tell of it."""
        index = prompt * self.n + event.index
        offset = len(self.completions[index].text)
        self.completions[index].add(event)
        cost = {"tokens": list(event.ids), "seconds": event.cost.seconds, "cycles": event.cost.cycles}
        chunks = self._chunks(index, event, offset)
        if chunks and event.ids:
            chunks[0]["abele"] = cost
        return chunks

    def closing(self) -> list[Json]:
        """Chunks after the last token."""
        if not self.call.include_usage:
            return []
        return [self._head(self.chunk_object) | {"choices": [], "usage": self.usage()}]

    def whole(self) -> Json:
        """The answer as one object."""
        cost = {
            "seconds": [completion.cost.seconds for completion in self.completions],
            "cycles": [completion.cost.cycles for completion in self.completions],
        }
        choices = [self._choice(completion) | {"index": i} for i, completion in enumerate(self.completions)]
        return self._head(self.whole_object) | {"choices": choices, "usage": self.usage(), "abele": cost}

    def usage(self) -> dict[str, int]:
        """Counts of tokens."""
        made = self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self.prompt_tokens + made,
        }

    def _head(self, kind: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": f"abele-{__version__}",
        }

    def _chunk(self, choice: Json) -> Json:
        usage = {"usage": None} if self.call.include_usage else {}
        return self._head(self.chunk_object) | {"choices": [choice]} | usage

    def _chunks(self, index: int, event: Event, offset: int) -> list[Json]:
        logprobs = self._logprobs(event.logprobs, offset)
        choice = {"text": event.text, "index": index, "logprobs": logprobs, "finish_reason": event.finish_reason}
        return [self._chunk(choice)]

    def _choice(self, completion: Completion) -> Json:
        prefix = self._texts[completion.index // self.n] if self._texts else ""
        return {
            "text": prefix + completion.text,
            "logprobs": self._logprobs(completion.logprobs, 0),
            "finish_reason": completion.finish_reason,
        }

    def _logprobs(self, found: Sequence[TokenLogprob], offset: int) -> Json | None:
        if self.call.settings["logprobs"] is None:
            return None
        texts = [self._token(one.token) for one in found]
        offsets = list(accumulate(map(len, texts), initial=offset))[: len(texts)]
        return {
            "tokens": texts,
            "token_logprobs": [_finite(one.logprob) for one in found],
            "top_logprobs": [{self._token(token): _finite(value) for token, value in one.top} for one in found],
            "text_offset": offsets,
        }

    def _token(self, token: int) -> str:
        return self.model.tokenizer.decode([token])


class ChatAnswer(TextAnswer):
    """The answer to a chat."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> list[Json]:
        """A chunk per continuation with the role of the speaker."""
        return [
            self._delta(i, {"role": "assistant", "content": "", "refusal": None}, None, None) for i in range(self.n)
        ]

    def _delta(self, index: int, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
        return self._chunk({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason})

    def _chunks(self, index: int, event: Event, offset: int) -> list[Json]:
        chunks = []
        if event.ids or event.text:
            logprobs = self._logprobs(event.logprobs, offset)
            chunks.append(self._delta(index, {"content": event.text}, logprobs, None))
        if event.finish_reason is not None:
            chunks.append(self._delta(index, {}, None, event.finish_reason))
        return chunks

    def _choice(self, completion: Completion) -> Json:
        return {
            "message": {"role": "assistant", "content": completion.text, "refusal": None},
            "logprobs": self._logprobs(completion.logprobs, 0),
            "finish_reason": completion.finish_reason,
        }

    def _logprobs(self, found: Sequence[TokenLogprob], offset: int) -> Json | None:
        if self.call.settings["logprobs"] is None:
            return None
        content = [
            self._entry(one.token, one.logprob) | {"top_logprobs": list(self._entries(one.top))} for one in found
        ]
        return {"content": content, "refusal": None}

    def _entries(self, top: Iterable[tuple[int, float]]) -> Iterable[Json]:
        return (self._entry(token, value) for token, value in top)

    def _entry(self, token: int, logprob: float) -> Json:
        text = self._token(token)
        # A token may be a part of a character: its bytes are not those of the sign that stands for it.
        whole = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
        return {"token": text, "logprob": _finite(logprob), "bytes": whole}
