"""The scripts of ``examples/poptorch`` do what they say, with small settings."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from support.pages import load_script

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("sklearn", reason="needs scikit-learn")

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "poptorch"


def load(name: str) -> ModuleType:
    """The module of a script."""
    return load_script(SCRIPTS / f"{name}.py", f"poptorch_{name}")


def test_digits__a_few_epochs__classifies_most_images() -> None:
    assert load("digits").main(epochs=3, count=600) > 0.6


@pytest.mark.parametrize(("masters", "automatic"), [pytest.param(True, False, marks=pytest.mark.slow), (False, True)])
def test_mixed_precision__with_scaled_losses__learns(masters: bool, automatic: bool) -> None:
    first, last = load("mixed_precision").main(masters=masters, automatic=automatic, runs=6)
    assert last < 0.5 * first


def test_data_loading__either_loader__trains() -> None:
    assert load("data_loading").main(count=64, sample_ms=0.5, width=8) > 0


@pytest.mark.slow
def test_block_attention__beside_all_of_it__learns_the_same() -> None:
    script = load("block_attention")
    found = script.main(script.Sizes(width=32, layers=1, batch=2, steps=16, files=20, tests=2))
    assert found["dense"] < 4.2
    assert found["blocks"] == pytest.approx(found["dense"], rel=0.03)


@pytest.mark.slow
def test_packed_text__beside_padded_documents__learns_the_same_from_fewer_rows() -> None:
    factor, packed, padded = load("packed_text").main(count=120, epochs=3)
    assert factor > 2.5
    assert packed["rows"] * factor == padded["rows"]
    assert packed["losses"][-1] < 0.85 * packed["losses"][0]
    assert packed["losses"][-1] == pytest.approx(padded["losses"][-1], rel=0.1)


def test_fine_tuning__frozen_body__stays_and_the_head_learns() -> None:
    kept, losses = load("fine_tuning").main(runs=4)
    assert kept
    assert losses[-1] < losses[0]


def test_data_parallel__with_norms_over_all_replicas__is_pytorch() -> None:
    loss, apart = load("data_parallel").main(replicas=2, each=12, runs=3)
    assert loss < 3
    assert apart < 1e-4


def test_tensor_parallel__two_models_on_two_replicas_each__learn_the_text() -> None:
    first, last = load("tensor_parallel").main(runs=12, width=16)
    assert last < 0.85 * first


@pytest.mark.parametrize(("group_size", "dropless"), [(2, False), pytest.param(1, True, marks=pytest.mark.slow)])
def test_mixture_of_experts__on_one_ipu_and_over_two__learns(group_size: int, dropless: bool) -> None:
    first, last, routed = load("mixture_of_experts").main(runs=25, group_size=group_size, dropless=dropless)
    assert last < 0.85 * first
    assert routed.tokens == 25 * 128 // group_size
    assert not routed.dropped or not dropless


@pytest.mark.slow
def test_phased__stack_larger_than_its_ipu__learns_what_the_host_does() -> None:
    fits, loss, expected, used = load("phased").main(layers=10, width=256, tiles=8, updates=3)
    assert not fits
    assert loss == pytest.approx(expected, rel=1e-5)
    assert used < 0.9


@pytest.mark.slow
def test_pipeline__beside_one_ipu_and_shards__learns_the_same_in_fewer_cycles() -> None:
    found = load("pipeline").main(width=64, layers=4, accumulation=16, updates=2)
    losses, cycles = zip(*found.values(), strict=True)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)
    assert cycles[2] < 0.8 * cycles[1]


@pytest.mark.slow
def test_sparse_training__a_few_epochs__learn() -> None:
    curves = load("sparse_training").main(density=0.25, epochs=4, width=64, count=600, networks=("RigL",))
    assert curves["RigL"][-1] > 0.2


@pytest.mark.slow
def test_sparse_training__a_tenth_of_the_weights__is_within_a_point_and_a_half_of_all() -> None:
    curves = load("sparse_training").main(epochs=20, networks=("dense", "RigL"))
    assert curves["RigL"][-1] > curves["dense"][-1] - 0.015
