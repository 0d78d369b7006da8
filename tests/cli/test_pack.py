"""``abele pack``: what it prints, for people and for programs, and its errors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

LENGTHS = "length,count\n12,40\n30,25\n45,30\n60,20\n90,10\n100,5\n"


@pytest.fixture
def lengths(tmp_path: Path) -> str:
    path = tmp_path / "lengths.csv"
    path.write_text(LENGTHS, encoding="ascii")
    return str(path)


def test_pack__a_histogram__prints_packs_bound_strategies_and_depths(abele: Run, lengths: str) -> None:
    finished = abele("pack", lengths, "--max", "100", "--depth", "3")
    assert finished.status == 0
    assert finished.out.startswith("130 sequences in packs of 100 tokens, at most 3 in a pack: columns")
    for text in ("none has fewer", "expected on Bow-2000", "profiled on an IPU-M2000", "2 × 45", "no limit"):
        assert text in finished.out


def test_pack__json__agrees_with_itself(abele: Run, lengths: str) -> None:
    data = json.loads(abele("pack", lengths, "--max", "100", "--json", "--top", "100", "--overhead", "5").out)
    assert data["bound"] <= data["num_packs"] == sum(row["packs"] for row in data["strategies"])
    assert sum(len(row["lengths"]) * row["packs"] for row in data["strategies"]) == data["num_sequences"] == 130
    assert data["num_packs"] * 100 == data["num_tokens"] + data["padding_tokens"]
    assert data["speed_up"] == pytest.approx(data["factor"] / 1.05)
    assert data["overhead_source"] == "given"
    packs = [row["num_packs"] for row in data["by_depth"]]
    assert packs == sorted(packs, reverse=True)
    assert packs[0] == 130


def test_pack__m2000__has_the_published_overhead_as_its_own(abele: Run, lengths: str) -> None:
    data = json.loads(abele("pack", lengths, "--max", "100", "--depth", "3", "--system", "m2000", "--json").out)
    assert data["overhead_proportion"] == 0.04287
    assert "taken over" not in data["overhead_source"]


def test_pack__standard_input__is_read(abele: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"5\n6\n9\n")))
    assert "3 sequences in packs of 10 tokens" in abele("pack", "-", "--max", "10").out


def test_pack__split__cuts_long_ones(abele: Run, lengths: str) -> None:
    assert "pieces in packs of 50 tokens" in abele("pack", lengths, "--max", "50", "--split").out


def test_pack__picture__is_a_png(abele: Run, lengths: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "lengths.png"
    assert abele("pack", lengths, "--max", "100", "--picture", str(picture)).status == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max", "50"), "ItemSizeError: items are over the capacity of 50: 35 of 130"),
        (("--max", "0"), "PackingError: the capacity of a pack is at least 1"),
        (("--max", "100", "--depth", "0"), "PackingError: the depth of a pack is at least 1"),
        (("--max", "100", "--method", "bfd"), "InvalidOptionError: no method of packing is called 'bfd'"),
        (("--max", "100", "--system", "bwo"), "MachineError: no system is called 'bwo'"),
        (("--max", "100", "--column", "n"), "PackingError: "),
        (("--max", "100", "--overhead", "-3"), "PackingError: an overhead is a proportion"),
        (("--max", "100", "--picture", "/nowhere/at/all.png"), "FileFormatError: /nowhere/at/all.png: cannot be"),
    ],
)
def test_pack__wrong_arguments__are_named(abele: Run, lengths: str, arguments: tuple[str, ...], message: str) -> None:
    finished = abele("pack", lengths, *arguments)
    assert finished.status == 2
    assert finished.err.startswith(f"abele: {message}")
