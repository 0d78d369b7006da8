"""``abele plan``: what it says, how it pins, and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

Run = Callable[..., Any]

CONV = ("conv", "--field", "56,56", "--kernel", "3,3", "--channels", "64,64", "--padding", "1")
DEPTHWISE = ("conv", "--field", "28,28", "--kernel", "3", "--channels", "32,32", "--groups", "32", "--batch", "4")
STEM = ("conv", "--field", "32,32", "--kernel", "7,7", "--channels", "3,64", "--stride", "2")
POINTWISE = ("conv", "--field", "28,28", "--kernel", "1", "--channels", "32,64")
MATMUL = ("matmul", "1024", "4096", "512")


def test_plan__product_that_one_tile_can_do__is_told_in_words(abele: Run) -> None:
    kept = '{"0": {"transform": {"swapOperands": false}}}'
    finished = abele("plan", "matmul", "16", "16", "16", "--constraints", kept)
    assert finished.status == 0
    assert finished.out.startswith("matmul [16 x 16] by [16 x 16]: f16, partials f32, result f16; one Bow IPU")
    assert "matrix units, one kernel position (ConvPartial1x1Out), 8 units" in finished.out
    assert "nothing moves: operands are stored as the vertices read them" in finished.out
    assert "partials are converted from f32 to f16" in finished.out
    assert '"planConstraints"' not in finished.out
    assert '{"method": {"type": "AMP"}, "0": {"transform": {"swapOperands": ' in finished.out


def test_plan__large_product__names_split_runner_up_and_other_vertices(abele: Run) -> None:
    out = abele("plan", *MATMUL, "--system", "bow").out
    for text in ("inner dimension: 4,096 in ", "partials of every output are exchanged and summed", "next best"):
        assert text in out
    assert "best hmac" in out
    assert "sum of partials" in out
    assert "B allowed" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((*DEPTHWISE, "--constraints", '{"method": {"type": "AMP"}}'), "groups are combined: 32 of one channel become"),
        (
            (*STEM, "--batch", "16"),
            "the kernel is expanded into the channels (7 x 7 positions): 3 in-channels become 147",
        ),
        (POINTWISE, "samples and field are taken as one dimension (nothing moves)"),
        ((*MATMUL[:2], "64", "512", "--partials", "half"), "16 units"),
        (("matmul", "4", "16", "16"), "rows and columns swap"),
        (("matmul", "64", "64", "64", "--groups", "8"), "8 groups"),
    ],
)
def test_plan__ways_around_the_vertices__are_told(abele: Run, arguments: tuple[str, ...], text: str) -> None:
    assert text in abele("plan", *arguments).out.replace("\n          ", " ")


@pytest.mark.parametrize(
    "arguments",
    [CONV, DEPTHWISE, STEM, POINTWISE, MATMUL, (*MATMUL, "--pass", "TRAINING_FWD"), ("matmul", "100", "70", "30")],
)
def test_plan__pinned_by_what_it_prints__is_the_same(abele: Run, arguments: tuple[str, ...]) -> None:
    free = json.loads(abele("plan", *arguments, "--json").out)
    pin = json.dumps(free["plan_constraints"])
    pinned = json.loads(abele("plan", *arguments, "--constraints", pin, "--json").out)
    for name in ("chosen", "cycles", "before", "after", "split"):
        assert pinned[name] == free[name]


def test_plan__terms__add_up(abele: Run) -> None:
    data = json.loads(abele("plan", *CONV, "--json").out)
    chosen = data["chosen"]
    assert sum(chosen["terms"].values()) == chosen["cycles"] == data["cycles"] - data["rearranging_cycles"]
    assert data["runner_up"]["cycles"] >= chosen["cycles"]
    assert chosen["temporary_bytes"] <= chosen["available_bytes"]
    assert chosen["vertex"] not in {other["vertex"] for other in data["other_vertices"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("matmul", "1024", "4096"), "InvalidOptionError: a product has three sizes, got 2: 1024 4096"),
        (("matmul", "0", "4", "4"), "InvalidOptionError: sizes and groups are at least 1"),
        ((*MATMUL, "--system", "bwo"), "MachineError: no system is called 'bwo'"),
        ((*MATMUL, "--pass", "FWD"), "InvalidOptionError: matmul: option 'fullyConnectedPass' takes one of"),
        ((*MATMUL, "--constraints", "{"), "InvalidOptionError: matmul: option 'planConstraints' is not understood"),
        ((*MATMUL, "--type", "int"), "TypeMismatchError: matmul: operands of type i32"),
        ((*CONV[:4], "9,9,9", *CONV[5:]), "InvalidOptionError: --kernel takes one number, or one for each of 2"),
        ((*CONV[:6], "64"), "InvalidOptionError: --channels takes two numbers, in and out, got '64'"),
        (("conv", "--field", "a,b", *CONV[3:]), "InvalidOptionError: --field takes whole numbers"),
        (("conv", "--field", "3,3", "--kernel", "7,7", "--channels", "3,64"), "TensorError: convolution: the kernel"),
    ],
)
def test_plan__wrong_arguments__are_named(abele: Run, arguments: tuple[str, ...], message: str) -> None:
    finished = abele("plan", *arguments)
    assert finished.status == 2
    assert finished.err.startswith(f"abele: {message}")


def test_plan__pin_that_no_way_allows__says_why(abele: Run) -> None:
    pin = '{"0": {"partition": {"outChanSplit": 4000}}}'
    finished = abele("plan", *MATMUL, "--constraints", pin)
    assert finished.status == 2
    assert "the plan is to have 4000 parts of co" in finished.err


@pytest.mark.parametrize("command", [MATMUL, CONV, DEPTHWISE, STEM], ids=["matmul", "conv", "depthwise", "stem"])
def test_plan__of_each_kind__prints_the_golden(
    command: tuple[str, ...], abele: Run, snapshot: SnapshotAssertion
) -> None:
    assert abele("plan", *command).out == snapshot
