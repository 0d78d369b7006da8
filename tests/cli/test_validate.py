"""``abele validate``: three rows of operators, two of silicon, the page."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from abele.validation import blur, dense, elementwise, matvec

Run = Callable[..., Any]

OPERATORS = """name,tool,params,mk1_cycles,mk1_total_mem_bytes,mk2_cycles,mk2_total_mem_bytes,mk2_max_tile_mem_bytes
sum_a,reduction,"--shape 64,32 --dims 0 --type half",1000,9000,1000,9000,864
sum_b,reduction,"--shape 32,32 --dims 1 --type float",1000,9000,,,
product,gemm,--m 32 --k 32 --n 32,1000,90000,1000,90000,213300
"""


@pytest.fixture(autouse=True, scope="module")
def made_once() -> Iterator[None]:
    """Comparisons that read no file are the same in all tests here, and have one program of blurs and two products."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "MEASURED", {8192: dense.MEASURED[8192], 1024: {1024: dense.MEASURED[1024][1024]}})
        patch.setattr(blur, "VARIANTS", blur.VARIANTS[2:3])
        patch.setattr(blur, "GRIDS", {1: blur.GRIDS[1]})
        for module in (dense, elementwise, matvec, blur):
            patch.setattr(module, "compare", functools.cache(module.compare))
        yield


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    operators, silicon = tmp_path / "operators.csv", tmp_path / "silicon.csv"
    operators.write_text(OPERATORS)
    silicon.write_text("N,tflops_measured,cycles_measured\n16,55.5,402.0\n1024,323,4428\n")
    return operators, silicon


def test_validate__three_operators__makes_a_page(abele: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    operators, silicon = files
    arguments = (
        "--operators",
        str(operators),
        "--silicon",
        str(silicon),
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "page"),
    )
    finished = abele("validate", *arguments, "--json")
    assert finished.status == 0, finished.err
    data = json.loads(finished.out)
    found = {c["key"]: c for c in data["comparisons"]}
    assert list(found) == [
        *("silicon", "gemm", "elementwise", "matvec", "blur", "operators", "memory", "partials"),
        *("vertex_state", "exchange_code", "control_code", "vertex_code"),
    ]
    assert data["failures"] == []
    assert found["operators"]["errors"]["count"] == 5
    page = (tmp_path / "page" / "validation.md").read_text(encoding="utf-8")
    assert "sum\\_a, gc200" in page
    assert "without" not in found["memory"]["title"]
    assert found["partials"]["errors"]["count"] == 1
    assert "code of vertices and of control and stacks are left out" in page


def test_validate__plain__prints_errors_and_verdicts(abele: Run) -> None:
    finished = abele("validate")
    assert finished.status == 0
    assert "relative errors" in finished.out
    assert "dense f16 products on a Bow" in finished.out
    assert "holds" in finished.out


def test_validate__silicon_that_is_not_met__exits_1(abele: Run, tmp_path: Path) -> None:
    path = tmp_path / "silicon.csv"
    path.write_text("N,cycles_measured\n16,800\n")
    finished = abele("validate", "--silicon", str(path))
    assert finished.status == 1
    assert "does not hold" in finished.out


def test_validate__file_missing__is_named(abele: Run, tmp_path: Path) -> None:
    finished = abele("validate", "--operators", str(tmp_path / "none.csv"))
    assert finished.status == 2
    assert "InvalidOptionError: there is no file" in finished.err


def test_validate__packing_alone__makes_no_other_comparison(abele: Run, tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("length,glue_rte_128\n10,4\n64,\n100,7\n")
    finished = abele("validate", "--packing", str(path), "--json")
    assert finished.status == 1
    data = json.loads(finished.out)
    assert [c["key"] for c in data["comparisons"]] == ["packing_glue"]


def test_validate__packing_file_missing__is_named(abele: Run, tmp_path: Path) -> None:
    finished = abele("validate", "--packing", str(tmp_path / "none.csv"))
    assert finished.status == 2
    assert "there is no file" in finished.err
