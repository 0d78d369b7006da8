"""Spreads of a small decoder, against whole models that are compiled as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from abele.errors import FittingError, InvalidOptionError
from abele.llm.config import LlamaConfig
from abele.llm.sizing import Costing, DecodePlan, Workload, fit
from abele.llm.sizing.measure import WORK, measured
from abele.llm.sizing.parts import layers_part, share_of
from abele.llm.sizing.presets import MODELS, num_weights
from abele.machine import systems
from abele.session import Settings

pytestmark = pytest.mark.torch

SMALL = LlamaConfig(
    vocabulary=96, hidden=64, layers=6, heads=4, kv_heads=2, head_size=16, wide=96, positions=64, tied_head=True
)
SYSTEM = systems.get("bow-2000")


@pytest.mark.slow
def test_layers__compiled_as_a_whole__are_what_two_and_three_layers_say() -> None:
    costing = Costing(SMALL, SYSTEM, Settings())
    how: dict[str, Any] = {"group": 1, "batch": 2, "tokens": 1, "cached": 32}
    found = costing.layers(streamed=False, **how).of(SMALL.layers)
    whole = measured(
        layers_part(SMALL, SMALL.layers, dtype=torch.float16, **how), 1, SYSTEM, Settings(shared_functions=False)
    )
    assert found.cycles == pytest.approx(whole.cycles, rel=0.05)
    assert sum(found.bytes["weights"]) == pytest.approx(whole.weights.sum(), rel=0.01)
    assert sum(found.bytes["cache"]) == whole.cache.sum() == 6 * 2 * (2 * 2 + 1) * 16 * 2 * 16 * 2
    by_tile = sum(found.bytes.values(), np.zeros_like(whole.peak))
    names = ("weights", "cache", "other", "code", "vertex_code", "overhead", "peak")
    assert by_tile.max() == pytest.approx(sum(getattr(whole, name) for name in names).max(), rel=0.05)


@pytest.mark.slow
def test_groups__of_two__halve_weights_and_pay_with_sums() -> None:
    costing = Costing(SMALL, SYSTEM, Settings())
    alone, pair = (costing.layers(group=group, batch=1, tokens=1, cached=32, streamed=False).of(6) for group in (1, 2))
    assert alone.work["collectives"] == 0 < pair.work["collectives"]
    assert sum(pair.bytes["weights"]) == pytest.approx(sum(alone.bytes["weights"]) / 2, rel=0.05)
    assert sum(pair.bytes["cache"]) == sum(alone.bytes["cache"]) / 2


@pytest.mark.slow
def test_streamed_weights__of_any_number_of_layers__take_the_room_of_one_layer() -> None:
    costing = Costing(SMALL, SYSTEM, Settings())
    layers = costing.layers(group=1, batch=1, tokens=1, cached=32, streamed=True)
    six, sixty = layers.of(6, looped=True), layers.of(60, looped=True)
    assert sixty.work["streaming"] == pytest.approx(10 * six.work["streaming"], rel=0.1)
    assert (six.bytes["code"] == sixty.bytes["code"]).all()
    assert (sixty.bytes["peak"] == six.bytes["peak"]).all()
    assert layers.two.streamed_bytes >= 2 * (num_weights(SMALL) - 96 * 64) / 6 * 2
    rate = layers.two.streamed_bytes / SYSTEM.seconds(layers.two.streaming)
    assert rate < SYSTEM.dram_bytes_per_second(1)


@pytest.mark.slow
def test_stages__of_a_pipeline__share_layers_and_make_sequences_wait() -> None:
    work = Workload(config=SMALL, prompt=16, new=16, batch=4)
    costing = Costing(SMALL, SYSTEM, Settings())
    one = costing.decode(DecodePlan(group=1), work)
    four = costing.decode(DecodePlan(group=1, stages=4), work)
    assert DecodePlan(group=1, stages=4).layers(SMALL) == (1, 2, 2, 1)
    assert max(stage.weights for stage in four.memory) < one.fullest.weights / 2
    assert {"transfers", "waiting"} <= four.work.keys()
    assert sum(four.work.values()) == pytest.approx(four.step_seconds)
    assert sum(one.work.values()) == pytest.approx(one.step_seconds)
    assert set(one.work) == set(WORK)
    assert four.first_token_seconds is not None
    assert four.first_token_seconds > 0


@pytest.mark.slow
def test_fit__of_a_model_that_fits_one_ipu__says_so_and_is_plain_data() -> None:
    found = fit(SMALL, system="bow-2000", prompt=16, new=16, batches=(1, 4))
    first, many = found.answers
    assert first.smallest is not None
    assert first.smallest.plan.ipus == 1
    assert many.best is not None
    assert many.best.plan.replicas * many.best.plan.ipus_of_model == many.best.plan.ipus
    assert many.best.tokens_per_second > first.smallest.tokens_per_second
    told: Any = found.to_json()["answers"]
    assert [answer["batch"] for answer in told] == [1, 4]
    assert told[0]["best"]["work_s"]
    text = str(found)
    assert "the smallest machine that holds it has 1 IPU" in text
    assert "a step of batch" in text


def test_fit__where_nothing_fits__says_what_is_short() -> None:
    large = replace(MODELS["llama-2-70b"], positions=1 << 20)
    with pytest.raises(FittingError) as error:
        fit(large, system="c600", prompt=1000, new=1 << 18, batches=(64,))
    assert "weights take 137.95 GB" in (error.value.because or "")
    assert "IPUs" in (error.value.remedy or "")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"batches": (0,)}, "batches"),
        ({"batches": (True,)}, "batches"),
        ({"prompt": 0}, "prompt"),
        ({"new": 64}, "positions"),
        ({"formats": ("int5",)}, "int5"),
        ({"model": "lama-2-7b"}, "llama-2-7b"),
    ],
)
def test_fit__of_wrong_words__names_them(change: dict[str, object], named: str) -> None:
    asked: dict[str, Any] = {"model": SMALL, "prompt": 16, "new": 16, **change}
    with pytest.raises(InvalidOptionError, match=named):
        fit(asked.pop("model"), **asked)


def test_share_of__seventy_billion_over_sixteen__gives_each_pair_a_head_of_keys() -> None:
    share = share_of(MODELS["llama-2-70b"], 16)
    assert (share.heads, share.kv_heads, share.wide, share.vocabulary) == (4, 1, 1792, 2000)
    with pytest.raises(InvalidOptionError, match="9 heads"):
        share_of(MODELS["smollm2-135m"], 2)


def test_num_weights__of_published_models__are_their_names() -> None:
    billions = {name: num_weights(config) / 1e9 for name, config in MODELS.items()}
    assert billions["llama-2-7b"] == pytest.approx(6.74, abs=0.01)
    assert billions["llama-2-13b"] == pytest.approx(13.02, abs=0.01)
    assert billions["llama-2-70b"] == pytest.approx(68.98, abs=0.01)
    assert billions["gpt-j-6b"] == pytest.approx(6.05, abs=0.01)
    assert billions["smollm2-135m"] == pytest.approx(0.1345, abs=0.0001)
