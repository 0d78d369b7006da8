"""Costs: the columns that count, and finding them again."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spread_models import mlp

from abele.errors import AbeleError
from abele.fitting import FitSpace, ModelSize, fit_network, measure
from abele.fitting.costs import fullest_columns
from abele.fitting.fit import _compile
from abele.fitting.search import FitSearch, stages_of
from abele.machine import systems
from support.examples import examples


@examples(40)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.01, 0.5]))
def test_fullest_columns__any_rows__no_sum_or_maximum_of_rows_loses_more_than_the_slack(rows, columns, seed, slack):
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 4, (rows, columns))
    kept_columns = fullest_columns(data, slack)
    assert len(set(kept_columns.tolist())) == len(kept_columns)
    for _ in range(8):
        weights, chosen = rng.integers(0, 3, rows), rng.random(rows) < 0.5
        needed = (weights[:, None] * data).sum(axis=0) + (data[chosen].max(axis=0) if chosen.any() else 0)
        assert needed[kept_columns].max() * (1 + slack) >= needed.max()


def test_fullest_columns__one_that_another_outdoes__is_left_out():
    assert fullest_columns(np.array([[1, 3, 2, 3], [5, 1, 1, 1]])).tolist() == [0, 1]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path))
    return tmp_path


_KEY = """
from abele.numerics import f16
from abele.network import Group, NetworkBuilder, Schedule, Sgd
from abele.session import Settings
from abele.session.store import content_key
net = NetworkBuilder()
weight = net.parameter((4,), "f16", "w")
net.output(weight)
rule = Sgd(lr=0.1, momentum=0.9, accumulation=f16, variable=frozenset({"lr", "momentum", "dampening", "weight_decay"}))
print(content_key(net.finish(), Schedule(), [Group(rule, (weight,))], Settings()))
"""


def test_content_key__other_process__is_the_same():
    # Sets are in another order there.
    keys = {
        subprocess.run(
            [sys.executable, "-c", _KEY],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(keys) == 1


def test_fit__second_time__compiles_no_segment_and_finds_the_same(own_cache, monkeypatch):
    space = FitSpace(system=systems.resolve("bow-2000"), batch=1024, micro_batches=(16,))

    def run():
        return fit_network(lambda b: mlp(b, layers=4), space, check=0)

    def refused(*_):
        raise AbeleError("a segment is compiled")

    first = run()
    monkeypatch.setattr(measure, "_measured", refused)
    again = run()
    assert [(r.plan, r.estimate) for r in again.ranking] == [(r.plan, r.estimate) for r in first.ranking]
    # Another micro-batch is another segment.
    with pytest.raises(AbeleError, match="a segment is compiled"):
        fit_network(
            lambda b: mlp(b, layers=4),
            FitSpace(system=systems.resolve("bow-2000"), batch=1024, micro_batches=(8,)),
            check=0,
        )


def test_code_bytes__equal_layers__exchanges_have_one_program_in_common_as_in_a_whole_compile():
    layers = 6
    of_one = FitSpace(system=systems.resolve("bow-2000:1"), batch=1024, micro_batches=(16,), proportions=(None,))
    search = FitSearch(of_one, lambda b: mlp(b, width=512, layers=layers), lambda _what, _part: None)
    search.run()
    case, costs = search.tried[0]
    memory = stages_of(case.plan, costs, of_one).usual.memory
    whole = _compile(case.found[0], search.models[ModelSize(16)], search.chains[ModelSize(16)], of_one).report.memory
    held = dict(zip(whole.categories, whole.bytes, strict=True))
    compiled = sum(float(held[name].mean()) for name in ("vertex_state", "control_code", "exchange_code"))
    # What layers cost by themselves, with a program each, is nearly a third more than that.
    assert compiled < memory.code_bytes(0, layers) < 1.15 * compiled
    assert sum(float(s.code.mean()) for s in memory.costs.segments) > 1.25 * compiled
