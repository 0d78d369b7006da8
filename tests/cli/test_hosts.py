"""``abele hosts --measure``."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abele.host_facts import rates
from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import load, nest, store
from abele.kernels.plan import product_table
from abele.kernels.plan.measure_products import MeasuredRates, measured_target
from abele.kernels.plan.passes import run_passes
from abele.kernels.products.choose import choose_product
from abele.kernels.routines.product_class import POINTS, ProductClass
from abele.numerics import f32

Run = Callable[..., Any]
CLASSES = [ProductClass(), ProductClass(True, True)]


@pytest.fixture(autouse=True)
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates by chance, of two classes."""
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ABELE_PRODUCTS", raising=False)
    monkeypatch.setattr(rates, "_known", {})
    monkeypatch.setattr(rates, "measure_rates", lambda: rates.MachineRates(2, 1e11, 2e10, 2e11, 3e10))
    monkeypatch.setattr(
        MeasuredRates,
        "_shares",
        lambda _, way, of, shapes, **__: [
            0.1 + zlib.crc32(repr((way, of, shape)).encode()) % 89 / 100 for shape in shapes
        ],
    )
    monkeypatch.setattr(product_table, "product_classes", lambda _: CLASSES)
    choose_product.cache_clear()
    yield
    choose_product.cache_clear()


def way(of: ProductClass, shape: tuple[int, int, int]) -> str:
    """Way that a plan of a product says in its listing."""
    extents = dict(zip("ijk", shape, strict=True))
    orders = ("ki" if of.left_turned else "ik", "jk" if of.right_turned else "kj", "ij")
    shapes = tuple(tuple(extents[d] for d in order) for order in orders)
    dot = nest(extents, store(2, ("i", "j"), load(0, *orders[0]) * load(1, *orders[1]), "add"))
    buffers = [Buffer(n, s, f32, True, "abc"[n]) for n, s in enumerate(shapes)]
    call = BoundKernel(HostKernel(shapes, (f32,) * 3, 2, 1, (dot,)), tuple(map(bind, buffers)), "dot")
    program = run_passes(bound_calls(buffers, [call], measured_target(run_passes)), after="choose_schedules")
    (function,) = (function for leaf in program.leaves for function in leaf.functions)
    words = str(function.schedule).split()
    return words[words.index("by") + 1] if words[0] == "product" else "loops"


def test_measure__as_json__shows_what_plans_choose(abele: Run) -> None:
    shown = json.loads(abele("hosts", "--measure", "--json").out)
    assert [c["name"] for c in shown["classes"]] == ["plain-plain", "turned-turned"]
    ways = set()
    for of, told in zip(CLASSES, shown["classes"], strict=True):
        assert [tuple(p["shape"]) for p in told["points"]] == list(POINTS)
        for point in told["points"]:
            assert point["chosen"] == way(of, tuple(point["shape"]))
            assert point["flops_per_second"].keys() >= {"loops", "packed"}
            ways.add(point["chosen"])
    assert ways >= {"loops", "packed"}
    assert shown["rates"]["flops_per_second"] == 1e11
    assert all(library.keys() == {"name", "version"} for library in shown["libraries"])


def test_measure__for_people__is_a_table_for_each_class(abele: Run) -> None:
    out = abele("hosts", "--measure").out
    for words in (
        "100 GFLOP/s on one thread, 200 GFLOP/s on 2; memory 30 GB/s",
        "Aᵀ·Bᵀ, GFLOP/s of one thread",
        "chosen",
    ):
        assert words in out
    assert len([line for line in out.splitlines() if line.rstrip().endswith((" loops", " packed", " mkl"))]) == 2 * len(
        POINTS
    )


def test_measure__again__measures_anew(abele: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for share in (0.25, 0.5):
        monkeypatch.setattr(
            MeasuredRates, "_shares", lambda _, way, of, shapes, share=share, **__: [share] * len(shapes)
        )
        told = json.loads(abele("hosts", "--measure", "--json").out)
        shown.append(told["classes"][0]["points"][0]["flops_per_second"]["loops"])
    assert shown == [2.5e10, 5e10]


def test_measure__then_cache_clear__forgets_it(abele: Run) -> None:
    abele("hosts", "--measure")
    assert "measured fact" in abele("cache", "clear").out
    assert "measured fact" not in abele("cache", "clear").out


@pytest.mark.parametrize("value", ["loops", "packed"])
def test_measure__without_a_choice__is_refused(abele: Run, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ABELE_PRODUCTS", value)
    finished = abele("hosts", "--measure")
    assert finished.status != 0
    assert "leaves no choice" in finished.err
    assert "leave it unset" in finished.err


def test_measure__of_a_preset__is_refused(abele: Run) -> None:
    finished = abele("hosts", "epyc-7742", "--measure")
    assert finished.status != 0
    assert "--measure is of this computer" in finished.err
