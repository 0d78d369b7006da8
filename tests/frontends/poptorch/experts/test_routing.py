"""Routing: capacity, the order of drops, ties, and rows that change places."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from experts_kit import choices_in_turn
from hypothesis import given
from hypothesis import strategies as st

from abele import poptorch
from abele.poptorch import experts as ex
from support.examples import examples


@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(1, 6), st.integers(1, 6), st.integers(1, 7), st.integers(0, 2**32)
)
@examples(60)
def test_route__any_scores__gives_slots_in_turn(
    groups: int, size: int, num_experts: int, k: int, capacity: int, seed: int
) -> None:
    k = min(k, num_experts)
    # Few different scores: ties are common.
    scores = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, (groups * size, num_experts)) / 4.0)
    routing = ex.route(scores, k, capacity, groups=groups)
    found = choices_in_turn(routing.experts, num_experts, capacity, groups)
    slots = np.full((groups * size, k), num_experts * groups * capacity)
    for (token, rank), place in found.items():
        expert, group = int(routing.experts[token, rank]), token // size
        slots[token, rank] = (expert * groups + group) * capacity + place
    assert (routing.slots.numpy() == slots).all()
    assert int(routing.dropped) == slots.size - len(found)
    for slot, choice in enumerate(routing.choices.tolist()):
        assert choice == slots.size if slot not in slots else slots.reshape(-1)[choice] == slot
    assert routing.load.tolist() == [int((routing.experts == n).sum()) for n in range(num_experts)]
    for row, picked in zip(scores.tolist(), routing.experts.tolist(), strict=True):
        assert picked == sorted(range(num_experts), key=lambda n: (-row[n], n))[:k]


def test_route__full_expert__drops_later_tokens_and_second_choices() -> None:
    first_choice_0 = torch.tensor([[0.5, 0.4, 0.1]] * 3 + [[0.4, 0.5, 0.1]])
    routing = ex.route(first_choice_0, 2, 2)
    # Expert 0 takes the first choices of tokens 0 and 1; token 2 and the second choice of token 3 are dropped.
    assert routing.slots.tolist() == [[0, 3], [1, 6], [6, 6], [2, 6]]
    assert routing.experts.tolist() == [[0, 1], [0, 1], [0, 1], [1, 0]]
    assert int(routing.dropped) == 4


def test_routing__dispatch_and_combine__are_transposes() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand((7, 3), generator=generator, dtype=torch.float64)
    routing = ex.route(scores, 2, 3)
    tokens = torch.rand((7, 4), generator=generator, dtype=torch.float64, requires_grad=True)
    slots = routing.dispatch(tokens)
    assert slots.shape == (3, 3, 4)
    assert torch.autograd.gradcheck(routing.dispatch, (tokens,))
    made = torch.rand((3, 3, 4), generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(routing.combine, (made,))
    empty = (routing.choices == 14).nonzero()[:, 0]
    assert not slots.detach().reshape(9, 4)[empty].any()


def test_choose_tokens__each_expert__has_the_best_of_its_group() -> None:
    scores = torch.rand((8, 3), dtype=torch.float64)
    chosen = ex.choose_tokens(scores, 2, groups=2)
    for expert in range(3):
        for group in range(2):
            part = scores[group * 4 : group * 4 + 4, expert]
            expected = (part.sort(descending=True).indices[:2] + group * 4).tolist()
            assert chosen.tokens[expert, group * 2 : group * 2 + 2].tolist() == expected


def test_capacity__of_a_share__is_rounded_up_and_no_more_than_tokens() -> None:
    assert [ex.capacity_of(10, 4, 1, f) for f in (0.1, 1.0, 1.25, 100.0)] == [1, 3, 4, 10]


def test_losses__of_equal_probabilities__are_at_their_least() -> None:
    equal = torch.full((8, 4), 0.25)
    experts = torch.arange(8).reshape(8, 1) % 4
    assert float(ex.load_balancing_loss(equal, experts)) == pytest.approx(1.0)
    one = torch.eye(4)[torch.zeros(8, dtype=torch.long)]
    assert float(ex.load_balancing_loss(one, torch.zeros(8, 1, dtype=torch.long))) == pytest.approx(4.0)
    loads = torch.full((1, 4), 2)
    assert float(ex.load_balancing_loss(equal, experts, loads=loads)) == pytest.approx(1.0)
    assert float(ex.router_z_loss(torch.zeros(3, 4))) == pytest.approx(math.log(4) ** 2)


@pytest.mark.parametrize(
    ("scores", "k", "capacity", "groups", "words"),
    [
        (torch.ones(4, 3), 4, 2, 1, "top_k = 4 of 3 experts"),
        (torch.ones(4, 3), 0, 2, 1, "top_k = 0 of 3 experts"),
        (torch.ones(4, 3), 1, 0, 1, "0 slots for 4 tokens: every token would be dropped"),
        (torch.ones(4, 3), 1, 1, 3, "4 tokens do not divide into 3 groups"),
        (torch.ones(2, 2, 3), 1, 1, 1, r"are \[tokens, experts\], not \[2, 2, 3\]"),
        (torch.tensor([[1.0, 2.0], [math.nan, 1.0]]), 1, 1, 1, "not finite: token 1 has"),
        (torch.tensor([[1.0, math.inf]]), 1, 1, 1, "not finite: token 0"),
    ],
)
def test_route__what_makes_no_sense__is_refused(
    scores: torch.Tensor, k: int, capacity: int, groups: int, words: str
) -> None:
    with pytest.raises(poptorch.Error, match=words):
        ex.route(scores, k, capacity, groups=groups)


def test_choose_tokens__more_than_there_are__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="takes 5 tokens of 4"):
        ex.choose_tokens(torch.ones(4, 2), 5)
