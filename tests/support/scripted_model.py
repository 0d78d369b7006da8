"""A model that makes tokens by arithmetic, so that serving is tested without one.

Text depends on the prompt's last token, the seed and the position alone, whatever else is in the batch.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.llm.generation import DecodeCall, DecodedTokens, Event, Generator, PrefillCall, Shape, StepCost
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.served import ServedModel
from abele.llm.serving.step_account import TITLES, StepAccount

END = 256
VOCABULARY = 257
LETTERS = np.frombuffer(b"etaoin shrdlu", np.uint8).astype(np.int64)
STEP_CYCLES = 1850
CLOCK_HZ = 1.85e9


class WatchedGenerator(Generator):
    """A generator that notes how many steps each request's first token takes from its turn on."""

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self.turns: dict[int, int] = {}
        self.first_steps: list[int] = []

    def step(self) -> list[Event]:
        events = super().step()
        for continuation in self.scheduler.running:
            self.turns.setdefault(continuation.ticket.id, self.num_steps)
        for event in events:
            if event.ids and event.num_tokens == len(event.ids):
                self.first_steps.append(1 + self.num_steps - self.turns.get(event.ticket.id, self.num_steps))
        return events


class ByteTokenizer:
    """A token per byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if token < END).decode("utf-8", "replace")


class ScriptedBackend:
    """Tokens by arithmetic. ``step_seconds`` is how long a step takes here; ``fail`` makes the next steps fail.

    Temperature 0 repeats the letter after the last one; others draw by seed and position. The prompt's last token 'Z'
    makes a text that ends after 5 tokens.
    """

    def __init__(self, shape: Shape, step_seconds: float = 0.0) -> None:
        self.shape, self.vocabulary, self.step_seconds = shape, VOCABULARY, step_seconds
        self.fail: Exception | None = None
        self.calls = 0

    def prefill(self, call: PrefillCall) -> StepCost:
        return StepCost(100 * call.count, 100 * call.count / CLOCK_HZ)

    def decode(self, call: DecodeCall) -> DecodedTokens:
        self.calls += 1
        time.sleep(self.step_seconds)
        if self.fail is not None:
            raise self.fail
        token, place = call.tokens.astype(np.int64), call.first.astype(np.int64)
        drawn = (token * 31 + place * 17 + (place + 7) * call.seeds.astype(np.int64)) % len(LETTERS)
        greedy = np.searchsorted(np.sort(LETTERS), token, side="right") % len(LETTERS)
        made = np.where(call.temperature == 0, np.sort(LETTERS)[greedy], LETTERS[drawn])
        made = np.where(token == ord("z"), END, np.where(token == ord("Z"), ord("z"), made))
        tokens = np.zeros((self.shape.slots, self.shape.steps), np.int32)
        tokens[:, 0] = made
        counts = np.minimum(call.steps, 1).astype(np.int32)
        top = np.stack([made, np.full_like(made, ord("#")), np.full_like(made, 0xC3)], 1)[:, None, : self.shape.top]
        values = np.array([-0.25, -1.5, -np.inf], np.float32)[: self.shape.top]
        return DecodedTokens(
            tokens=tokens,
            counts=counts,
            logprobs=np.full(tokens.shape, -0.25, np.float32),
            top_ids=top.astype(np.int32),
            top_logprobs=np.broadcast_to(values, top.shape),
            cost=StepCost(STEP_CYCLES, STEP_CYCLES / CLOCK_HZ),
        )

    def copy_pages(self, sources: np.ndarray, targets: np.ndarray) -> StepCost:
        return StepCost()


def chat(messages: Sequence[dict[str, str]]) -> list[int]:
    """A template of one line per message."""
    return list("".join(f"{message['role']}: {message['content']}\n" for message in messages).encode())


def account() -> StepAccount:
    """An account with figures that add up."""
    cycles = dict(zip(TITLES, (300, 700, 50, 200, 350, 150, 100, 0), strict=True))
    return StepAccount(
        cycles=cycles,
        clock_hz=CLOCK_HZ,
        machine="a scripted machine",
        fits=True,
        fullest_bytes=400_000,
        room_bytes=638_976,
    )


def scripted_model(*, slots: int = 4, positions: int = 256, step_seconds: float = 0.0, top: int = 3) -> ServedModel:
    """A served model over the scripted backend."""
    pages = slots * -(-positions // 16) + 1
    shape = Shape(slots=slots, positions=positions, page=16, pages=pages, chunk=32, steps=1, top=top)
    tokenizer = ByteTokenizer()
    engine = WatchedGenerator(None, tokenizer, backend=ScriptedBackend(shape, step_seconds), end_ids=(END,))
    return ServedModel(
        name="scripted",
        engine=engine,
        tokenizer=tokenizer,
        positions=positions,
        chat=chat,
        top=top,
        account=account,
        machine="a scripted machine",
    )


def main() -> None:
    """A server on the loopback, which prints its address."""
    from abele.llm.serving.server import serve

    parser = argparse.ArgumentParser()
    for name, kind in (("port", int), ("slots", int), ("positions", int), ("step-seconds", float), ("queue", int)):
        parser.add_argument(f"--{name}", type=kind, default=None)
    parser.add_argument("--grace-seconds", type=float, default=5.0)
    parser.add_argument("--unread-tokens", type=int, default=4096)
    parser.add_argument("--request-seconds", type=float, default=60.0)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    limits = ServingLimits(
        queue=256 if given.queue is None else given.queue,
        grace_seconds=given.grace_seconds,
        unread_tokens=given.unread_tokens,
        request_seconds=given.request_seconds,
    )
    model = scripted_model(
        slots=given.slots or 4, positions=given.positions or 256, step_seconds=given.step_seconds or 0.0
    )
    serve(model, port=given.port or 0, limits=limits, started=lambda address: print(address, flush=True))
    print("most steps to a first token:", max(model.engine.first_steps, default=0), flush=True)


if __name__ == "__main__":
    main()
