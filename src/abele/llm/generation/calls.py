"""Arrays of calls to a backend, from the sequences that take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from abele.llm.generation.backend import MOST_END_IDS, Backend, DecodeCall, Ints, PrefillCall, Shape
from abele.llm.generation.events import StepCost, Ticket
from abele.llm.generation.output import SequenceOutput
from abele.llm.generation.scheduler import ChunkOfPrompt, Continuation, Scheduler

_GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ over the golden ratio: seeds of the completions of one request lie far apart."""

_LEAST_TOP_P = 1e-6
"""Stands for a ``top_p`` of 0: the most likely token alone reaches it."""


def page_table(shape: Shape, continuation: Continuation) -> Ints:
    """Pages of a sequence, padded with the scratch page."""
    table = np.zeros(shape.table, np.int32)
    table[: len(continuation.pages)] = continuation.pages
    return table


def prefill_call(shape: Shape, chunk: ChunkOfPrompt) -> PrefillCall:
    """The call that prefills a chunk."""
    tokens = np.zeros(shape.chunk, np.int32)
    tokens[: chunk.count] = chunk.continuation.tokens[chunk.first : chunk.first + chunk.count]
    table = page_table(shape, chunk.continuation)
    return PrefillCall(tokens=tokens, first=chunk.first, count=chunk.count, table=table)


def alone(backend: Backend, scheduler: Scheduler, ticket: Ticket) -> tuple[Continuation, StepCost]:
    """The only sequence of an engine, prefilled up to its last token but one, and the cost of that."""
    (continuation,) = scheduler.add(ticket)
    scheduler.admit()
    cost = StepCost()
    while (chunk := scheduler.next_chunk()) is not None:
        cost += backend.prefill(prefill_call(scheduler.shape, chunk))
        scheduler.chunk_done(chunk)
    return continuation, cost


def folded_seed(seed: int, index: int) -> int:
    """32 signed bits for the device, from the seed of 64 bits and the number of the completion.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
    """
    mixed = (seed + index * _GOLDEN) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    folded = (mixed ^ mixed >> 31) & 0xFFFFFFFF
    return folded - 2**32 if folded >> 31 else folded


def decode_call(
    shape: Shape,
    ready: Sequence[tuple[Continuation, int]],
    outputs: Mapping[Continuation, SequenceOutput],
) -> DecodeCall:
    """A decode call of these sequences, each with the steps that it can take; other slots are idle."""
    slots = shape.slots
    call = DecodeCall(
        tokens=np.zeros(slots, np.int32),
        first=np.zeros(slots, np.int32),
        table=np.zeros((slots, shape.table), np.int32),
        steps=np.zeros(slots, np.int32),
        end_ids=np.full((slots, MOST_END_IDS), -1, np.int32),
        temperature=np.zeros(slots, np.float32),
        top_k=np.zeros(slots, np.int32),
        top_p=np.ones(slots, np.float32),
        min_p=np.zeros(slots, np.float32),
        penalty=np.ones(slots, np.float32),
        seeds=np.zeros(slots, np.int32),
        history=_history(shape, ready),
    )
    for continuation, steps in ready:
        slot, request = continuation.slot, continuation.request
        call.tokens[slot] = continuation.tokens[-1]
        call.first[slot] = continuation.filled
        call.table[slot] = page_table(shape, continuation)
        call.steps[slot] = steps
        ends = sorted(outputs[continuation].end_ids)
        call.end_ids[slot, : len(ends)] = ends
        call.temperature[slot] = request.temperature
        call.top_k[slot] = min(request.top_k, 2**31 - 1)
        call.top_p[slot] = max(request.top_p, _LEAST_TOP_P)
        call.min_p[slot] = request.min_p
        call.penalty[slot] = request.repetition_penalty
        call.seeds[slot] = folded_seed(continuation.ticket.seed, continuation.index)
    return call


def _history(shape: Shape, ready: Sequence[tuple[Continuation, int]]) -> Ints | None:
    """Tokens of each sequence, for penalties on repeating them; None where no sequence has one."""
    if all(continuation.request.repetition_penalty == 1 for continuation, _ in ready):
        return None
    history = np.zeros((shape.slots, shape.positions), np.int32)
    for continuation, _ in ready:
        history[continuation.slot] = continuation.tokens[0]
        history[continuation.slot, : len(continuation.tokens)] = continuation.tokens
    return history
