"""Generation on the modelled machine against plain PyTorch."""

from __future__ import annotations

import pytest
import torch

from abele.llm.config import LlamaConfig
from abele.llm.generation import Completion, Generator, Request, RequestError, Shape
from abele.llm.generation.compiled import CompiledBackend
from abele.llm.models.llama import Llama

SHAPE = Shape(slots=3, positions=48, page=8, pages=9, chunk=8, steps=4, top=4)
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [3], [*range(20)], [7] * 9]


def _model() -> Llama:
    torch.manual_seed(0)
    model = Llama(
        LlamaConfig(vocabulary=61, hidden=16, layers=1, heads=2, kv_heads=1, head_size=8, wide=32, positions=48)
    )
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:
                value.mul_(4)
    return model.eval()


def _settings(i: int) -> dict[str, object]:
    kinds: list[dict[str, object]] = [
        {},
        {"temperature": 0.9},
        {"temperature": 1.1, "top_k": 12, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3},
        {"repetition_penalty": 1.5, "end_ids": (5, 6, 7, 8)},
    ]
    return {"seed": i, **kinds[i % 4]}


def _key(completions: list[Completion]) -> list[tuple[list[int], str | None]]:
    return [(c.ids, c.finish_reason) for c in completions]


@pytest.mark.slow
def test_compiled__requests_of_all_kinds__give_the_tokens_of_eager_pytorch_alone_and_together() -> None:
    model = _model()
    backend = CompiledBackend(model, SHAPE)
    requests = [
        Request(prompt=prompt, max_tokens=9 + i, logprobs=3, **_settings(i)) for i, prompt in enumerate(PROMPTS * 2)
    ]
    eager = Generator(model, slots=3, positions=48, page=8, chunk=8, top=4).generate(requests)
    generator = Generator(None, backend=backend)
    together = generator.generate(requests)
    assert _key(together) == _key(eager)
    for mine, theirs in zip(together, eager, strict=True):
        assert [x.logprob for x in mine.logprobs] == pytest.approx([x.logprob for x in theirs.logprobs], abs=1e-4)
        assert [[t for t, _ in x.top] for x in mine.logprobs] == [[t for t, _ in x.top] for x in theirs.logprobs]
        assert mine.cost.cycles > 0
        assert mine.cost.seconds > 0
    assert generator.scheduler.num_preempted > 0
    again = Generator(None, backend=backend)
    alone = [again.generate([request])[0] for request in requests[::-1]][::-1]
    assert _key(alone) == _key(together)
    for i, (mine, theirs) in enumerate(zip(alone, together, strict=True)):
        if i % 4:
            assert mine.logprobs == theirs.logprobs, "the same bits"
        else:
            # Greedy requests alone run a program without draws, whose sums may be in another order.
            assert [x.logprob for x in mine.logprobs] == pytest.approx([x.logprob for x in theirs.logprobs], abs=1e-5)
    for penalty in (0.0, 1.0):
        found = again.beams(PROMPTS[3], num_beams=2, num_returned=2, length_penalty=penalty, max_tokens=8)
        wanted = Generator(model, slots=3, positions=48, page=8, chunk=8, top=4).beams(
            PROMPTS[3], num_beams=2, num_returned=2, length_penalty=penalty, max_tokens=8
        )
        assert _key(found) == _key(wanted)
    with torch.no_grad():
        model.embedding.weight[60] = torch.nan
    backend.programs.state["step.model.embedding.weight"] = model.embedding.weight
    tickets = [again.submit([1, 60]), again.submit(PROMPTS[0], max_tokens=9)]
    ids: list[int] = []
    while again.has_work:
        ids += [token for event in again.step() if event.ticket is tickets[1] for token in event.ids]
    assert [ticket.status for ticket in tickets] == ["error", "finished"]
    assert ids == together[0].ids


@pytest.mark.slow
def test_compiled__half_precision_for_greedy_requests__gives_the_tokens_of_eager_pytorch() -> None:
    model = _model().half()
    shape = Shape(slots=2, positions=48, page=8, pages=13, chunk=8, steps=8)
    generator = Generator(None, backend=CompiledBackend(model, shape, draws=False), end_ids=[5])
    eager = Generator(model, slots=2, positions=48, page=8, chunk=8, end_ids=[5])
    assert _key(generator.generate(PROMPTS, max_tokens=12)) == _key(eager.generate(PROMPTS, max_tokens=12))
    ticket = generator.submit([1], temperature=1.0)
    generator.step()
    assert isinstance(ticket.error, RequestError)
    assert len(generator.generate([[1]], max_tokens=2)[0].ids) == 2
