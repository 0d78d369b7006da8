"""Times of products and convolutions by libraries."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from abele.errors import InvalidOptionError
from abele.host_facts import host_name, libraries
from abele.host_facts.libraries import against_library, library_flops, library_times
from abele.report import HOST_FUNCTIONS, HOST_LEAVES, HostProfile

SHAPES = {
    "8x16x32 f32": 2 * 8 * 16 * 32,
    "3 of 8x16x32 bf16": 6 * 8 * 16 * 32,
    "conv 2x3x9x9 by 4x3x3x3 / 2 f32": 2 * 2 * 4 * 4 * 4 * 3 * 9,
    "conv 2x3x10 by 5x3x4 / 1 f32": 2 * 2 * 5 * 7 * 12,
    "conv weights 2x3x9x9 by 4x3x3x3 / 2 f32": 2 * 2 * 4 * 4 * 4 * 3 * 9,
}


def profile_of(*products: str, **facts: object) -> HostProfile:
    leaves = HOST_LEAVES.table(
        name=[f"leaf {p}" for p in products],
        kind=["kernel"] * len(products),
        executions=[2] * len(products),
        seconds=[0.25 * (n + 1) for n in range(len(products))],
        flops=[1000] * len(products),
        product=list(products),
    )
    known = {"host": host_name(), "threads": 2, "products": True}
    return HostProfile(leaves, HOST_FUNCTIONS.empty(), known | facts)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_EACH_SECONDS", 0.0)


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def found(name: str, *args: object, **named: object) -> object:
        assert name != "torch"
        return plain(name, *args, **named)

    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    monkeypatch.setattr(libraries, "sys", type("sys", (), {"modules": {}}))
    monkeypatch.setattr(builtins, "__import__", found)


@pytest.mark.parametrize(("shape", "flops"), [*SHAPES.items(), ("", 0), ("8x16 f32", 0), ("conv 2x3 by 4x3 / 1", 0)])
def test_library_flops__of_a_shape__are_those_of_its_sums(shape: str, flops: int) -> None:
    assert library_flops(shape) == flops


@pytest.mark.torch
@pytest.mark.usefixtures("quick")
def test_library_times__with_pytorch__measures_each_kind_and_leaves_its_threads() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    found = library_times([*SHAPES, "nonsense"], 2)
    assert [*found] == [*SHAPES]
    assert torch.get_num_threads() == before
    assert all(0 < times.all_seconds <= times.seconds < 1 for times in found.values())


@pytest.mark.usefixtures("quick", "without_torch")
def test_library_times__without_pytorch__measures_products_of_f32_by_numpy() -> None:
    found = library_times(SHAPES, 2)
    assert [*found] == ["8x16x32 f32"]
    assert (found["8x16x32 f32"].library, found["8x16x32 f32"].seconds) == ("NumPy's BLAS", 0.0)


@pytest.mark.usefixtures("quick", "without_torch")
def test_library_times__time_is_over__leaves_the_last_out() -> None:
    assert library_times(SHAPES, 2, limit=-1.0) == {}


@pytest.mark.usefixtures("quick", "without_torch")
def test_library_times__operands_beyond_memory__are_not_made() -> None:
    assert library_times(["1000000x1000000x1000000 f32"], 2) == {}


@pytest.mark.usefixtures("quick", "without_torch")
def test_against_library__leaves_with_products__have_a_line_each() -> None:
    found = against_library(profile_of("8x16x32 f32", "8x16x32 f32", "", "8x16x32 bf16"))
    lines = found.text().splitlines()
    assert sum("· 8x16x32 f32: " in line and "GFLOP/s by NumPy's BLAS, " in line for line in lines) == 2
    assert "1 product beside NumPy's BLAS; 1 without: time was over, or no library takes them" in lines
    taken = found.facts["against"]["8x16x32 f32"]["all_seconds"]
    assert f"{0.125 / taken:.1f} times this" in found.text()
    assert np.isclose(found.product_seconds()["8x16x32 f32"], 0.75)


@pytest.mark.usefixtures("quick", "without_torch")
def test_against_library__no_products__says_so() -> None:
    assert "no product or convolution to compare with a library" in against_library(profile_of("", "")).text()


def test_against_library__of_another_machine__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="say nothing of the report's") as caught:
        against_library(profile_of("8x16x32 f32", host="Sinclair ZX81, z80, 1 core"))
    assert "that is of Sinclair ZX81, z80, 1 core" in str(caught.value)


def test_against_library__report_without_shapes__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="does not know the shapes"):
        against_library(profile_of("", products=False))
