"""Samples of long sweeps: chosen by a seed, in order, repeatable, and whole where that is asked."""

from __future__ import annotations

import pytest

from support import sweeps

ITEMS = list(range(1000))


def test_sampled__same_seed_or_another__is_the_same_or_another() -> None:
    first, other = (sweeps.sampled(ITEMS, 50, by=seed) for seed in ("8feff850", "de744a83"))
    assert first == sweeps.sampled(ITEMS, 50, by="8feff850") != other
    assert len(set(first)) == 50
    assert first == sorted(first)


@pytest.mark.parametrize(("count", "seed"), [(50, sweeps.ALL), (1000, "8feff850")])
def test_sampled__all_or_as_many_as_there_are__is_the_whole_sweep(count: int, seed: str) -> None:
    assert sweeps.sampled(ITEMS, count, by=seed) == ITEMS


def test_seed__environment_commit_or_neither__is_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEP", raising=False)
    for commit, seed in (("8feff850fe6c", "8feff850fe6c"), ("", "no commit")):
        monkeypatch.setattr(sweeps, "_commit", lambda commit=commit: commit)
        assert sweeps.seed.__wrapped__() == seed
    monkeypatch.setenv("SWEEP", "all")
    assert sweeps.seed.__wrapped__() == "all"
