"""Generated text against transformers' own generate, alone and in a batch."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from abele.llm.generation import Completion, Generator, NotANumberError, Request, RequestError
from llm.families import pair

SIZES = {"slots": 4, "positions": 64, "page": 4, "chunk": 8, "steps_per_call": 5, "top": 8}
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [3], [1, 2, 3, 4, 5, 6, 7, 8, 9], [7, 7], [60, 4, 1]]
DRAWS = {"temperature": 0.9, "top_p": 0.9, "top_k": 30, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 5}


def _theirs(oracle: object, prompt: list[int], **options: object) -> torch.Tensor:
    ids = torch.tensor([prompt])
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, **options}
    return oracle.generate(ids, attention_mask=torch.ones_like(ids), **options)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["mistral", "gpt-2", pytest.param("gemma 2", marks=pytest.mark.slow)])
def test_generate__greedy_in_a_batch__is_what_transformers_generates(name: str) -> None:
    oracle, model = pair(name)
    made = Generator(model, **SIZES).generate(PROMPTS, max_tokens=20)
    for prompt, completion in zip(PROMPTS, made, strict=True):
        assert completion.ids == _theirs(oracle, prompt, max_new_tokens=20)[0, len(prompt) :].tolist()
        assert completion.finish_reason == "length"


def _settings(i: int) -> dict[str, object]:
    return DRAWS | {"seed": i} if i % 2 else {"seed": i, "temperature": 1.0} if i % 4 else {}


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_generate__alone_or_among_others__gives_the_same_bits(dtype: torch.dtype) -> None:
    _, model = pair("llama")
    model = model.to(dtype)
    requests = [
        Request(prompt=prompt, max_tokens=9 + i, logprobs=3, **_settings(i))
        for i, prompt in enumerate(PROMPTS + PROMPTS[:3])
    ]
    together = Generator(model, **SIZES).generate(requests)
    few_pages = Generator(model, **SIZES, pages=14)
    assert few_pages.generate(requests) == together
    assert few_pages.scheduler.num_preempted > 0
    other_calls = Generator(model, **SIZES | {"steps_per_call": 1}, chunks_per_step=1)
    assert other_calls.generate(reversed(requests)) == together[::-1]
    again = Generator(model, **SIZES)
    assert [again.generate([request])[0] for request in [requests[1], *requests]] == [together[1], *together]


def test_generate__n_of_one_prompt__are_different_draws_over_shared_pages() -> None:
    _, model = pair("llama")
    generator = Generator(model, **SIZES)
    prompt = list(range(30))
    made = generator.generate([prompt], n=3, temperature=1.5, seed=11, max_tokens=10)
    assert [c.index for c in made] == [0, 1, 2]
    assert len({tuple(c.ids) for c in made}) == 3
    assert generator.scheduler.num_reused == 2 * 24 // 4
    assert generator.generate([prompt], temperature=1.5, seed=11, max_tokens=10)[0].ids == made[0].ids


def test_logprobs__of_each_token__are_those_of_the_whole_sequence() -> None:
    _, model = pair("qwen 3")
    (made,) = Generator(model, **SIZES).generate([PROMPTS[1]], logprobs=4, max_tokens=9, **DRAWS)
    with torch.no_grad():
        wanted = model.logits(torch.tensor([PROMPTS[1] + made.ids]))[0, len(PROMPTS[1]) - 1 : -1].log_softmax(-1)
    values, ids = wanted.topk(4)
    for place, found in enumerate(made.logprobs):
        assert found.token == made.ids[place]
        assert found.logprob == pytest.approx(float(wanted[place, found.token]), abs=1e-4)
        assert [token for token, _ in found.top] == ids[place].tolist()
        assert [value for _, value in found.top] == pytest.approx(values[place].tolist(), abs=1e-4)


@pytest.mark.parametrize(("beams", "penalty", "eager"), [(4, 0.0, False), (4, 2.0, True), (3, -1.0, False)])
@pytest.mark.parametrize("end", [None, [5, 11, 40, 41]])
def test_beams__of_any_penalty_and_end__are_those_of_transformers(
    beams: int, penalty: float, eager: bool, end: list[int] | None
) -> None:
    oracle, model = pair("llama")
    generator = Generator(model, **SIZES, end_ids=end or ())
    for prompt in PROMPTS[:2]:
        wanted = _theirs(
            oracle,
            prompt,
            num_beams=beams,
            num_return_sequences=beams,
            length_penalty=penalty,
            early_stopping=eager,
            max_new_tokens=15,
            eos_token_id=end,
            output_scores=True,
            return_dict_in_generate=True,
        )
        made = generator.beams(
            prompt, num_beams=beams, num_returned=beams, length_penalty=penalty, early_stopping=eager, max_tokens=15
        )
        rows = [
            row[len(prompt) : len(prompt) + len(c.ids)].tolist() for row, c in zip(wanted.sequences, made, strict=True)
        ]
        assert [c.ids for c in made] == rows
        assert [c.score for c in made] == pytest.approx(wanted.sequences_scores.tolist(), abs=1e-4)
        assert generator.scheduler.pool.num_held == 0
    assert generator.generate([PROMPTS[0]], max_tokens=4)[0].finish_reason in ("length", "stop")


def test_penalty__of_tokens_seen__is_that_of_transformers() -> None:
    oracle, model = pair("llama")
    made = Generator(model, **SIZES).generate(PROMPTS, max_tokens=20, repetition_penalty=1.7)
    for prompt, completion in zip(PROMPTS, made, strict=True):
        wanted = _theirs(oracle, prompt, max_new_tokens=20, repetition_penalty=1.7)
        assert completion.ids == wanted[0, len(prompt) :].tolist()


def test_submit__from_many_threads__loses_nothing() -> None:
    _, model = pair("llama")
    generator = Generator(model, **SIZES)
    alone = {i: Generator(model, **SIZES).generate([[i]], max_tokens=6)[0].ids for i in range(6)}
    tickets: dict[int, object] = {}
    threads = [
        threading.Thread(target=lambda i=i: tickets.update({i: generator.submit([i], max_tokens=6)})) for i in alone
    ]
    for thread in threads:
        thread.start()
    ids: dict[object, list[int]] = {}
    while any(thread.is_alive() for thread in threads) or generator.has_work:
        for event in generator.step():
            ids.setdefault(event.ticket, []).extend(event.ids)
    assert {i: ids[ticket] for i, ticket in tickets.items()} == alone


def test_generate__nan_of_one_sequence__ends_that_one_alone() -> None:
    _, model = pair("llama")
    wanted = Generator(model, **SIZES).generate(PROMPTS[:2], max_tokens=6)
    with torch.no_grad():
        model.embedding.weight[66] = torch.nan
    generator = Generator(model, **SIZES)
    tickets = [generator.submit(p, max_tokens=6) for p in ([66, 1, 2, 3, 4, 5], *PROMPTS[:2], [1, 66], *PROMPTS[:2])]
    found = {ticket: Completion() for ticket in tickets}
    while generator.has_work:
        for event in generator.step():
            found[event.ticket].add(event)
    assert [t.status for t in tickets] == ["error", "finished", "finished", "error", "finished", "finished"]
    assert isinstance(tickets[0].error, NotANumberError)
    assert [found[t].ids for t in tickets if t.status == "finished"] == [c.ids for c in wanted] * 2
    again = [generator.submit(p, max_tokens=30) for p in PROMPTS]
    while generator.has_work:
        generator.step()
    assert {t.status for t in again} == {"finished"}, "pages of the sequences that failed harm nobody"
    with pytest.raises(NotANumberError, match="the logits of token 0 are NaN"):
        generator.generate([[66]])


def test_backend__that_fails__ends_its_sequences_and_serves_the_next() -> None:
    _, model = pair("llama")
    generator = Generator(model, **SIZES)
    working = generator.backend.decode

    def failing(call: object) -> None:
        raise RuntimeError("no memory")

    generator.backend.decode = failing  # type: ignore[assignment,method-assign]
    ticket = generator.submit([1, 2])
    (event,) = generator.step()
    assert (event.finish_reason, ticket.status) == ("error", "error")
    assert "no memory" in str(ticket.error)
    generator.backend.decode = working  # type: ignore[method-assign]
    assert len(generator.generate([[1, 2]], max_tokens=3)[0].ids) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt": []}, "a prompt without tokens"),
        ({"prompt": [1] * 64}, "a prompt of 64 tokens, in a context of 64 positions"),
        ({"prompt": [67]}, "token 67 in the prompt, of a vocabulary of 67"),
        ({"prompt": [-1]}, r"prompt\[0\] is -1"),
        ({"prompt": [True]}, r"prompt\[0\] is True"),
        ({"temperature": -0.5}, "temperature is -0.5"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": 10**400}, "temperature is 1000"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": -1}, "min_p is -1"),
        ({"top_k": 2.0}, "top_k is 2.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"seed": 2**64}, "no whole number of 64 bits"),
        ({"seed": 10**5000}, "a whole number of 16610 bits"),
        ({"n": 0}, "n is 0"),
        ({"stop": ("",)}, r"stop\[0\] is ''"),
        ({"stop": ("a",)}, "stop strings, and no tokenizer"),
        ({"logprobs": 9}, "logprobs 9, of a generator that reports 8"),
        ({"end_ids": range(9)}, "9 tokens that end a sequence"),
    ],
)
def test_submit__what_cannot_be_served__is_refused_and_nothing_is_queued(
    settings: dict[str, object], message: str
) -> None:
    generator = Generator(pair("llama")[1], **SIZES)
    with pytest.raises(RequestError, match=message):
        generator.submit(settings.pop("prompt", [1]), **settings)
    assert not generator.has_work


def test_generator__wrong_calls__are_refused() -> None:
    model = pair("llama")[1]
    generator = Generator(model, **SIZES)
    for call, message in (
        (lambda: generator.generate([]), "a batch of nothing"),
        (lambda: generator.generate("text"), "takes a list of prompts"),
        (lambda: generator.submit("text"), "a prompt of text, and no tokenizer"),
        (lambda: generator.beams([1], num_beams=5), "5 beams, of a backend with 4 slots"),
        (lambda: generator.beams([1], temperature=1.0), "beams with temperature"),
        (lambda: Generator(model, positions=65), "65 positions, of a model with a context of 64"),
        (lambda: Generator(None), "a generator without a model"),
        (lambda: Generator(model, backend="fast"), "backend 'fast' is unknown"),
    ):
        with pytest.raises(RequestError, match=message):
            call()
    with pytest.raises(ValueError, match="slots is 0"):
        Generator(model, **SIZES | {"slots": 0})
    request = replace(Request(prompt=(1,)), max_tokens=None)
    assert len(generator.generate([request])[0].ids) == 63
