"""PyTorch's own samples of its operators: a few in every run, a sample in the slow one, and the page of them."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("expecttest", reason="PyTorch's databases of samples need it")

from torch import nn

from operators import page, running
from operators.choices import determined
from operators.compare import DifferenceError, difference
from operators.running import Limits, run_entry
from operators.samples import DTYPES, Case, Entry, entries
from operators.workers import run_all
from support import sweeps

SAMPLED = 200
"""Entries, with a type each, of the 2,257 that a run of slow tests checks; `make operators` checks all."""

FEW = (
    "atan2",
    "copysign",
    "fmod",
    "logaddexp",
    "nan_to_num",
    "frexp",
    "diagonal",
    "isin",
    "prod",
    "aminmax",
    "histogram",
    "nn.functional.linear_cross_entropy:chunked",
)
CORNERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "wraps_of_what_is_left": (nn.functional.pad, (torch.arange(16.0).reshape(1, 1, 4, 4), (-1, 1, -2, 1), "circular")),
    "margins_of_one_score": (nn.functional.multilabel_margin_loss, (torch.tensor(2.0), torch.tensor(0))),
    "windows_before_the_first": (
        functools.partial(nn.functional.fractional_max_pool2d, output_size=4, return_indices=True,
                          _random_samples=torch.tensor([[[1.5, -0.7]]])),
        (torch.arange(81.0).reshape(1, 1, 9, 9), 2),
    ),
    "averages_of_cut_windows": (nn.functional.avg_pool1d, (torch.arange(6.0).reshape(1, 1, 6), 4, 3, 2, True)),
    "neighbours_in_f16": (
        torch.nextafter,
        (torch.tensor([0.0, 6e-5, 6.1035e-5, 1.0, 65504.0, 5.96e-8, -2.0, math.nan], dtype=torch.float16),
         torch.tensor([1.0, 1.0, 0.0, 0.0, math.inf, -1.0, 0.0, 1.0], dtype=torch.float16)),
    ),
    "transposed_number": (torch.transpose, (torch.tensor(2.0), 0, 0)),
    "divisors_of_extremes": (
        torch.gcd, (torch.tensor([0, 7, 0, -12, 1836311903]), torch.tensor([[0, 0, -5, 18, 1134903170], [1] * 5]))
    ),
    "bools_added_under_a_mask": (
        lambda x, m: x.index_put((m,), torch.tensor(True), accumulate=True),
        (torch.tensor([True, False, False]), torch.tensor([False, True, False])),
    ),
    "bools_added_times_false": (
        functools.partial(torch.index_add, alpha=False),
        (torch.tensor([True, False, False]), 0, torch.tensor([0, 2]), torch.tensor([True, True])),
    ),
    "histogram_of_a_range_of_nothing": (
        functools.partial(torch.histogram, bins=4, density=True), (torch.full((5,), 2.0),)
    ),
    "histogram_of_weights_between_numbers": (
        lambda x, edges, w: torch.histogram(x, edges, weight=w, density=True),
        (torch.tensor([0.0, 1.0, 3.0, 2.5, -1.0, 5.0]), torch.tensor([0.0, 1.0, 2.5, 3.0]), torch.arange(6.0)),
    ),
    "rows_of_infinities": (
        torch.ops.aten._safe_softmax.default, (torch.tensor([[1.0, -math.inf], [-math.inf, -math.inf]]), 1)
    ),
}  # fmt: skip
INTEGER = (
    "div:floor_rounding",
    "remainder",
    "bitwise_left_shift",
    "pow",
    "any",
    "all",
    "heaviside",
    "gcd",
    "lcm",
    "nn.functional.linear",
    "nn.functional.bilinear",
)


def entry(name: str) -> Entry:
    (found,) = [e for e in entries() if e.name == name and e.kind == "operator"]
    return found


def run(name: str, dtype: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = run_entry(entry(name), DTYPES[dtype], dtype, Limits(samples=1), lambda label: None)
    assert row.status == "pass", row.failures
    assert row.cases


@pytest.mark.parametrize("name", FEW)
def test_operator__samples_in_f32__equal_pytorch_with_gradient(name: str) -> None:
    run(name, "f32")


@pytest.mark.parametrize("name", INTEGER)
def test_operator__samples_in_i32__equal_pytorch(name: str) -> None:
    run(name, "i32")


@pytest.mark.parametrize("name", ["nextafter", "matrix_exp", "nn.functional.soft_margin_loss"])
def test_operator__samples_in_f16__equal_pytorch(name: str) -> None:
    run(name, "f16")


@pytest.mark.parametrize("name", CORNERS)
def test_operator__corner_of_its_arguments__equals_pytorch(name: str) -> None:
    function, args = CORNERS[name]
    case = Case("corner", function, args, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert running._check_forward(case, running._eager(case)) < 1e-6


@pytest.mark.parametrize(
    "name", ["native_layer_norm", "native_batch_norm", "_native_batch_norm_legit", "as_strided_scatter"]
)
def test_operator__results_without_a_gradient_or_with_a_wrong_one__has_that_of_its_result(name: str) -> None:
    run(name, "f32")


def test_difference__wrong_structure_type_or_value__is_said() -> None:
    one = torch.ones(3)
    assert difference(one, one.double()) == 0.0
    assert difference([one, float("nan")], [one, float("nan")]) == 0.0
    for wrong, said in (
        ((one, one), "structure"),
        (one.half(), "type torch.float16, not torch.float32"),
        (torch.ones(3, 1), "shape"),
        (torch.tensor([1.0, 1.0, 1.1]), "1 of 3 elements differ"),
        (torch.tensor([1.0, 1.0, float("nan")]), "worst error inf"),
    ):
        with pytest.raises(DifferenceError, match=said):
            difference(wrong, one)


def test_difference__another_choice_among_equals__is_none() -> None:
    from torch.testing._internal.opinfo.core import SampleInput  # Importing it takes seconds.

    x = torch.tensor([[3, 1, 3, 2], [0, 0, 5, 5]], dtype=torch.int32)
    said = determined("topk", SampleInput(x, 2, dim=-1))
    assert said is not None
    values, places = x.topk(2)
    assert difference(said((values, places.flip(1))), said((values, places))) == 0.0
    for wrong in ([[0, 0], [2, 3]], [[0, 3], [2, 3]]):
        with pytest.raises(DifferenceError):
            difference(said((values, torch.tensor(wrong))), said((values, places)))
    assert determined("sort", SampleInput(x, kwargs={"stable": True})) is None
    assert determined("add", SampleInput(x)) is None


def test_rows__crash_of_a_process__is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    import faulthandler
    import os

    from operators import workers

    def crash(*args: object) -> None:
        faulthandler.disable()  # The crash is meant: its stack is no news.
        os.abort()

    monkeypatch.setattr(workers, "run_entry", crash)
    (row,) = run_all([(entry("add"), "f32")], Limits(samples=1), 1)
    assert (row.status, "SIGABRT" in row.reason) == ("fail", True)


def test_page__committed__is_made_of_the_committed_results() -> None:
    results = page.read_results()
    assert page.PAGE.read_text() == page.page(results)
    known = {(e.kind, e.name) for e in entries()}
    assert {(row["kind"], row["entry"]) for row in results["rows"]} <= known


def tasks() -> list[tuple[Entry, str]]:
    """All entries, with each of their types."""
    return [(e, name) for e in entries() for name, dtype in DTYPES.items() if e.takes(dtype)]


@pytest.mark.slow
def test_operators__sample_that_the_commit_chooses__still_passes() -> None:
    seed, chosen = sweeps.seed(), sweeps.sampled(tasks(), SAMPLED)
    rows = list(run_all(chosen, Limits(samples=2), 2))
    passed = {(r["kind"], r["entry"], r["dtype"]) for r in page.read_results()["rows"] if r["status"] == "pass"}
    lost = [
        f"{r.entry} {r.dtype}: {r.reason}" for r in rows if r.status == "fail" and (r.kind, r.entry, r.dtype) in passed
    ]
    assert not lost, "\n".join([f"SWEEP='{seed}' make operators runs this sample again:", *lost])
    assert len(rows) == len(chosen)
    if seed == sweeps.ALL:
        found = page.counts([row.as_json() for row in rows])
        assert page.share(found["f32", "operator"]) >= 98.0
        assert page.share(found["f16", "operator"]) >= 95.0
