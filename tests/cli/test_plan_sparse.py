"""``abele plan sparse-matmul``: what it says, and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]
PRODUCT = ("plan", "sparse-matmul", "4096", "4096", "1024", "--density", "0.0625", "--block", "16")


def test_plan_sparse__static__names_split_terms_and_memory(abele: Run) -> None:
    finished = abele(*PRODUCT)
    assert finished.status == 0
    for text in ("static sparse [4,096 x 4,096] by [4,096 x 1,024]", "bands", "dense rows in", "TFLOP/s", "allowed"):
        assert text in finished.out


def test_plan_sparse__json__adds_up(abele: Run) -> None:
    found = json.loads(abele(*PRODUCT, "--type", "float", "--system", "gc200", "--json").out)
    assert found["system"] == "gc200"
    assert found["problem"]["dtype"] == "f32"
    assert found["cycles"] == sum(found["terms"].values())
    assert found["memory"]["peak"] <= found["available_bytes"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("512", "512", "--density", "0.5"), "three sizes of at least 1, got 512 512"),
        (("512", "512", "0", "--density", "0.5"), "three sizes of at least 1"),
        (("512", "512", "8", "--density", "0"), "--density is above 0 and at most 1"),
        (("512", "512", "8", "--density", "0.5", "--block", "3"), "--block 3 does not divide 512 x 512"),
        (("512", "512", "8", "--density", "0.5", "--block", "2"), "blocks are 2 x 2"),
        (("512", "512", "8", "--density", "0.5", "--mode", "statik"), "did you mean 'static'?"),
        (("512", "512", "8", "--density", "0.5", "--type", "f8_143"), "does not multiply 8-bit floats"),
        (("8192", "8192", "4096", "--density", "0.5"), "fewer dense columns"),
    ],
)
def test_plan_sparse__wrong_input__says_what(abele: Run, arguments: tuple[str, ...], text: str) -> None:
    finished = abele("plan", "sparse-matmul", *arguments)
    assert finished.status in (1, 2)
    assert text in finished.err
