"""Continuous batching without a model: pages, order and text under any load."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.llm.generation import Event, Generator, PromptLengthError, Request, RequestError, Scheduler, Shape, Ticket
from abele.llm.generation.calls import folded_seed
from abele.llm.generation.pages import PagePool, digests
from support.recalling_backend import RecallingBackend

SHAPE = Shape(slots=3, positions=40, page=4, pages=31, chunk=8, steps=3, top=2)

requests = st.builds(
    lambda prefix, rest, count, seed, n: Request(prompt=(*range(prefix), *rest), max_tokens=count, seed=seed, n=n),
    st.integers(0, 18),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([1, 1, 1, 2]),
)


def _check_pages(scheduler: Scheduler) -> None:
    """Pages are held as often as sequences have them, and those held by two are full pages of one prompt."""
    held = Counter(page for c in scheduler.running for page in c.pages)
    pool = scheduler.pool
    assert 0 not in held
    assert {page: pool.holders(page) for page in held} == held
    assert pool.num_held == len(held)
    assert pool.num_available + pool.num_held == pool.pages - 1
    for page, count in held.items():
        if count > 1:
            owners = [(c, c.pages.index(page)) for c in scheduler.running if page in c.pages]
            assert len({(place, c.keys[place]) for c, place in owners}) == 1
            assert all(place < (len(c.request.prompt) - 1) // scheduler.shape.page for c, place in owners)
    assert all(not c.pages for c in scheduler.waiting)
    assert sorted(c.slot for c in scheduler.running) == sorted({c.slot for c in scheduler.running})


def _run(generator: Generator, arrivals: list[tuple[int, Request]], cancelled: set[int]) -> dict[Ticket, list[Event]]:
    """Events of every ticket, with invariants checked after each step."""
    found: dict[Ticket, list[Event]] = {}
    tickets: list[Ticket] = []
    rest, step = sorted(arrivals, key=lambda a: a[0]), 0
    while rest or generator.has_work:
        while rest and rest[0][0] <= step:
            tickets.append(generator.submit(rest.pop(0)[1]))
            found[tickets[-1]] = []
        for number in cancelled:
            if step == 5 and number < len(tickets):
                tickets[number].cancel()
        for event in generator.step():
            found[event.ticket].append(event)
        _check_pages(generator.scheduler)
        step += 1
        assert step < 3000, "it does not end"
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), requests), min_size=1, max_size=9),
    st.sampled_from([11, 12, 16, 31]),
    st.sampled_from([(8, 3), (3, 1), (5, 7), (40, 2)]),
    st.sets(st.integers(0, 9), max_size=2),
)
def test_sequences__any_load_and_few_pages__get_the_text_that_they_get_alone(
    arrivals: list[tuple[int, Request]], pages: int, sizes: tuple[int, int], cancelled: set[int]
) -> None:
    shape = replace(SHAPE, pages=pages, chunk=sizes[0], steps=sizes[1])
    backend = RecallingBackend(shape)
    generator = Generator(None, backend=backend, chunks_per_step=2)
    found = _run(generator, arrivals, cancelled)
    for ticket, events in found.items():
        for index in range(ticket.request.n):
            own = [e for e in events if e.index == index]
            assert [e.finish_reason for e in own[:-1]] == [None] * (len(own) - 1)
            ids = [token for e in own for token in e.ids]
            limit = min(ticket.request.max_tokens or 0, shape.positions - len(ticket.request.prompt))
            expected = backend.expected(list(ticket.request.prompt), limit, folded_seed(ticket.seed, index))
            assert own[-1].finish_reason == ("cancelled" if ticket.is_cancelled and len(ids) < limit else "length")
            assert ids == expected[: len(ids)]
            assert ticket.is_cancelled or ids == expected
            assert own[-1].num_tokens == len(ids)
    assert generator.scheduler.pool.num_held == 0
    assert generator.scheduler.pool.num_available == pages - 1


def test_first_tokens__many_short_prompts_behind_a_long_one__come_in_order_and_soon() -> None:
    shape = replace(SHAPE, slots=8, positions=400, pages=900, steps=4)
    generator = Generator(None, backend=RecallingBackend(shape), chunks_per_step=2)
    long = generator.submit([i % 90 for i in range(300)], max_tokens=4)
    short = [generator.submit([5, 6, i], max_tokens=4) for i in range(20)]
    first: dict[int, int] = {}
    step = 0
    while generator.has_work:
        step += 1
        for event in generator.step():
            first.setdefault(event.ticket.id, step)
    order = [first[ticket.id] for ticket in short]
    assert order == sorted(order)
    assert first[long.id] <= 38, "a chunk of 8 per step at least"
    assert max(order) <= 21, "a prompt of theirs per step at least"


def test_sequences__when_pages_run_out__the_youngest_starts_again_and_says_nothing_twice() -> None:
    backend = RecallingBackend(replace(SHAPE, pages=9))
    generator = Generator(None, backend=backend)
    found = _run(generator, [(0, Request(prompt=(i, 2, 3), max_tokens=20, seed=i)) for i in range(5)], set())
    assert generator.scheduler.num_preempted > 0
    for ticket, events in found.items():
        ids = [token for event in events for token in event.ids]
        assert ids == backend.expected(list(ticket.request.prompt), 20, folded_seed(ticket.seed, 0))


def test_pages__prompts_with_one_beginning__are_prefilled_once() -> None:
    backend = RecallingBackend(replace(SHAPE, slots=4))
    generator = Generator(None, backend=backend)
    prompt = list(range(22))
    generator.generate([Request(prompt=(*prompt, 1), max_tokens=2, n=3, seed=0)])
    assert sum(count for kind, count in backend.calls if kind == "prefill") == 22 + 2 * 6
    before = len(backend.calls)
    generator.generate([[*prompt, 9, 9]], max_tokens=1)
    assert [count for kind, count in backend.calls[before:] if kind == "prefill"] == [7]


def test_pages__of_the_oldest_use__are_given_away_first_and_from_their_end() -> None:
    pool = PagePool(5)
    first, second = digests(range(8), 4), digests(range(1, 9), 4)
    pages = [pool.take() for _ in range(4)]
    for page, key in zip(pages, [*first, *second], strict=True):
        pool.publish(page, key)
    assert pool.take() is None
    pool.release(pages[:2])
    pool.release(pages[2:])
    assert pool.take() == pages[1]
    assert [pool.find(key) for key in (*first, *second)] == [pages[0], None, *pages[2:]]
    pool.share(pages[0])
    assert [pool.take(), pool.take(), pool.take()] == [pages[3], pages[2], None]


def test_digests__of_equal_pages_behind_different_ones__differ() -> None:
    assert digests([1, 2, 3, 4], 2)[1] != digests([9, 2, 3, 4], 2)[1]
    assert digests([1, 2, 3, 4, 5], 2) == digests([1, 2, 3, 4], 2)
    assert digests([1], 2) == []


def test_requests__larger_than_the_context_or_the_cache__are_refused() -> None:
    generator = Generator(None, backend=RecallingBackend(replace(SHAPE, pages=6)))
    with pytest.raises(PromptLengthError, match="a prompt of 40 tokens, in a context of 40 positions"):
        generator.submit(range(40))
    with pytest.raises(RequestError, match="take 6 pages of the cache, which has 5"):
        generator.submit(range(10), max_tokens=12)
    assert not generator.has_work
    assert generator.generate([range(10)], max_tokens=11)[0].finish_reason == "length"


def test_tokens__that_differ_when_made_again__end_the_sequence_with_an_error() -> None:
    class Forgetful(RecallingBackend):
        def next_token(self, tokens, seed):  # type: ignore[no-untyped-def]
            return len(self.calls) % 89

    generator = Generator(None, backend=Forgetful(replace(SHAPE, pages=8, steps=1)))
    tickets = [generator.submit(range(5), max_tokens=15) for _ in range(2)]
    while generator.has_work:
        generator.step()
    assert [t.status for t in tickets] == ["finished", "error"]
    assert "the second time" in str(tickets[1].error)
