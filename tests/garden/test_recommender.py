"""The recommender's cases, its measure and the simpler means beside it."""

from __future__ import annotations

import ast

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele.garden import recommender
from abele.garden.recommender import (
    MASKED,
    Ratings,
    RecommenderNetwork,
    called_names,
    hidden_one_by_one,
    hit_rate,
    most_called,
    neighbours,
)

pytestmark = pytest.mark.torch


def test_called_names__functions_and_methods__are_found_and_nothing_else() -> None:
    tree = ast.parse("len(x.strip())\nopen\nf()()\n(lambda: 0)()\n@g(1)\ndef h(): pass")
    assert called_names(tree) == {"len", "strip", "f", "g"}


def test_ratings__held_out_files__add_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommender, "LEAST_FILES", 2)
    monkeypatch.setattr(recommender, "LEAST_NAMES", 1)
    sets = [{"a", f"rare{i}"} | ({"b"} if i % 2 else set()) for i in range(20)]
    ratings = Ratings.of(sets, seed=0)
    assert ratings.names == ["a", "b"]
    assert (len(ratings.train), len(ratings.held_out)) == (16, 4)
    assert np.array_equal(ratings.matrix()[:, 0], np.ones(16))


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_hidden_one_by_one__file__never_shows_what_it_hides(rng: np.random.Generator | None) -> None:
    files = [list(range(100)), [3, 5, 9]]
    seen, hidden = hidden_one_by_one(files, 200, rng)
    assert hidden.tolist() == [*range(100), 3, 5, 9]
    assert seen.shape == (103, recommender.CONTEXT)
    for row, name in zip(seen, hidden, strict=True):
        shown = [other for other in row if other != 200]
        assert name not in shown
        assert len(set(shown)) == len(shown) > 0
        assert set(shown) <= set(range(100))


def test_hit_rate__names_seen_and_padding__are_never_recommended() -> None:
    scores = np.tile(-np.arange(13.0), (2, 1))
    seen = np.array([[0, 1], [0, 13]])  # of 13 names; 13 fills up
    assert hit_rate(scores, seen, np.array([11, 10])) == 1.0
    assert hit_rate(scores, seen, np.array([11, 11])) == 0.5
    assert hit_rate(scores, seen, np.array([12, 11])) == 0.0


def test_simpler_means__counts__are_as_defined() -> None:
    ratings = Ratings(["a", "b", "c"], [[0, 1], [0, 1], [0, 2]], [])
    seen = np.array([[1, 3]])
    assert most_called(ratings, seen).tolist() == [[3.0, 2.0, 1.0]]
    assert neighbours(ratings, seen)[0] == pytest.approx([2 / np.sqrt(6), 0.0, 0.0])


def test_recommender_network__names_seen__are_masked() -> None:
    network = RecommenderNetwork(20, width=8).eval()
    seen = torch.tensor([[3, 7, 20, 20], [1, 2, 4, 5]])
    scores = network(seen)
    assert (scores == MASKED).nonzero()[:, 1].tolist() == [3, 7, 20, 1, 2, 4, 5, 20]
    assert torch.allclose(network(torch.tensor([[7, 20, 3, 20]])), scores[:1])
