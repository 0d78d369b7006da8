"""The table that sets modelled beside measured rates."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from abele.cli.demo import _comparisons

ROW: dict[str, Any] = {
    "batch": 512,
    "ratio": 0.8659,
    "fits": True,
    "limit": "loader",
    **{
        f"{name}_samples_per_second": rate
        for name, rate in {
            "modelled": 413_905.0,
            "measured": 478_000.0,
            "low": 222_673.0,
            "high": 480_150.0,
            "device": 1_031_298.0,
            "link": 28_775_106.0,
            "loader": 462_449.0,
        }.items()
    },
}


def test_comparisons__narrow_terminal__show_each_rate_and_the_limit() -> None:
    out = io.StringIO()
    rows = [ROW, {**ROW, "batch": 2048, "fits": False}]
    Console(file=out, width=80).print(_comparisons(cast(Any, SimpleNamespace(comparisons=rows))))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[0] == "modelled beside measured, 1,000 samples/s"
    assert lines[1].split() == ["batch", "modelled", "range", "measured", "ratio", "device", "link", "loader", "limit"]
    assert lines[2].split() == ["512", "414", "223", "to", "480", "478", "0.87x", "1,031", "28,775", "462", "loader"]
    assert lines[3].split()[-1] == "memory"
