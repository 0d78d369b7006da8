"""JAX's primitives beside JAX: a few in every run, a sample in the slow one, and the page of them."""

from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="needs JAX")

import numpy as np

from primitives import census, page
from primitives.numpy_samples import FUNCTIONS
from primitives.running import difference, has_primitive, run_sample
from primitives.samples import SAMPLES
from support import sweeps

FEW = ("exp", "div", "reduce_precision", "scatter-add", "sort", "conv_general_dilated", "scan", "threefry2x32")
SAMPLED = 150
"""Samples, with a type each, that a run of slow tests checks; `check.py` checks all."""


@pytest.mark.parametrize("name", FEW)
def test_primitive__first_sample__equals_jax(name: str) -> None:
    sample = next(s for s in SAMPLES if s.name == name)
    row = run_sample(sample, sample.types[0])
    assert row.status == "pass", row.reason


def test_primitives__each_in_scope__has_a_sample_whose_trace_has_it() -> None:
    rows = [{"name": s.name} for s in SAMPLES]
    assert page.unsampled(rows) == []


def test_reasons__speak_of_primitives_that_are_out_of_scope_alone() -> None:
    assert not {s.name for s in SAMPLES} & set(census.OUT_OF_SCOPE)


def test_difference__wrong_type_shape_or_value__is_said() -> None:
    one = np.ones(3, np.float32)
    assert difference(one, one, 1e-5) == (None, 0.0)
    assert "float64" in str(difference(one.astype(np.float64), one, 1e-5)[0])
    assert "1 of 3 differ" in str(difference(one + np.array([0, 1, 0], np.float32), one, 1e-5)[0])
    assert "differ" in str(difference(np.array([1, 2]), np.array([1, 3]), 1e-5)[0])


def test_page__is_made_of_the_kept_results() -> None:
    results = page.read_results()
    assert page.PAGE.read_text() == page.page(results)
    assert page.share(results["rows"]) >= 98.0


def test_results__have_every_sample_in_every_type() -> None:
    kept = {(r["name"], r["label"], r["dtype"]) for r in page.read_results()["rows"]}
    assert kept == {(s.name, s.label, t) for s in (*SAMPLES, *FUNCTIONS) for t in s.types}


@pytest.mark.slow
def test_traces__of_each_primitives_samples__have_it() -> None:
    by_name: dict[str, list[bool]] = {}
    for sample in SAMPLES:
        if sample.name in census.primitives() or sample.name in census.RENAMED.values():
            known = {v: k for k, v in census.RENAMED.items()}.get(sample.name, sample.name)
            names = (sample.name, known)
            by_name.setdefault(sample.name, []).append(any(has_primitive(sample, sample.types[0], n) for n in names))
    assert [name for name, found in by_name.items() if not any(found)] == []


@pytest.mark.slow
def test_samples__some_of_all__do_as_the_page_says() -> None:
    kept = {(r["name"], r["label"], r["dtype"]): r["status"] for r in page.read_results()["rows"]}
    tasks = [(s, t) for s in (*SAMPLES, *FUNCTIONS) for t in s.types]
    wrong = []
    for sample, dtype in sweeps.sampled(tasks, SAMPLED):
        row = run_sample(sample, dtype)
        if row.status != kept[sample.name, sample.label, dtype]:
            wrong.append(f"{sample.name} {sample.label} {dtype}: {row.status} {row.reason}")
    assert not wrong, "\n".join(wrong)
