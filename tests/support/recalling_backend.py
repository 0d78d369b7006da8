"""A backend whose next token is a digest of what its cache holds for a sequence, so that a wrong page changes text."""

from __future__ import annotations

import hashlib

import numpy as np

from abele.llm.generation import DecodeCall, DecodedTokens, PrefillCall, Shape, StepCost


class RecallingBackend:
    """Rows of the cache hold tokens. A token follows from all tokens read back through the table, and the seed."""

    def __init__(self, shape: Shape, vocabulary: int = 97) -> None:
        self.shape, self.vocabulary = shape, vocabulary
        self.rows = np.full(shape.pages * shape.page, -7, np.int64)
        self.calls: list[tuple[str, int]] = []

    def prefill(self, call: PrefillCall) -> StepCost:
        self.calls.append(("prefill", call.count))
        for place in range(call.count):
            self._write(call.table, call.first + place, int(call.tokens[place]))
        return StepCost(100, 1e-6)

    def decode(self, call: DecodeCall) -> DecodedTokens:
        self.calls.append(("decode", int((call.steps > 0).sum())))
        tokens = np.zeros((self.shape.slots, self.shape.steps), np.int32)
        counts = np.zeros(self.shape.slots, np.int32)
        logprobs = np.zeros(tokens.shape, np.float32)
        tops = np.zeros((*tokens.shape, self.shape.top), np.int32)
        for slot in np.flatnonzero(call.steps):
            token, first = int(call.tokens[slot]), int(call.first[slot])
            for step in range(call.steps[slot]):
                self._write(call.table[slot], first + step, token)
                token = self.next_token(self._read(call.table[slot], first + step), call.seeds[slot])
                tokens[slot, step], logprobs[slot, step] = token, -token
                tops[slot, step] = (token + np.arange(self.shape.top)) % self.vocabulary
                counts[slot] += 1
                if token in call.end_ids[slot]:
                    break
        values = np.repeat(logprobs[..., None], self.shape.top, -1)
        return DecodedTokens(
            tokens=tokens, counts=counts, logprobs=logprobs, top_ids=tops, top_logprobs=values, cost=StepCost(10, 1e-7)
        )

    def copy_pages(self, sources: np.ndarray, targets: np.ndarray) -> StepCost:
        pages = self.rows.reshape(-1, self.shape.page)
        pages[targets] = pages[sources]
        return StepCost()

    def next_token(self, tokens: np.ndarray, seed: np.ndarray) -> int:
        digest = hashlib.blake2b(
            np.asarray(tokens, np.int64).tobytes() + np.asarray(seed, np.int32).tobytes(), digest_size=8
        )
        return int.from_bytes(digest.digest(), "little") % self.vocabulary

    def expected(self, prompt: list[int], count: int, seed: np.ndarray) -> list[int]:
        """Tokens of a sequence with a cache of its own."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(self.next_token(np.array(tokens), seed))
        return tokens[len(prompt) :]

    def _write(self, table: np.ndarray, place: int, token: int) -> None:
        page = table[place // self.shape.page]
        assert page > 0, "a token written to scratch"
        self.rows[page * self.shape.page + place % self.shape.page] = token

    def _read(self, table: np.ndarray, last: int) -> np.ndarray:
        places = np.arange(last + 1)
        return self.rows[table[places // self.shape.page] * self.shape.page + places % self.shape.page]
