"""``abele onnx``: a model looked at, run, compared and costed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

from onnx import parser

TEXT = """<ir_version: 8, opset_import: ["" : 17]> mlp (float[N, 4] x) => (float[N, 3] y)
    <float[4, 3] w = {1,2,3,4,5,6,7,8,9,10,11,12}> { a = MatMul (x, w) y = Relu (a) }"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    return str(path)


def test_onnx__of_a_model__runs_compares_and_costs_it(abele: Callable[..., Any], model: str, tmp_path: Path) -> None:
    finished = abele("onnx", model, "--shape", "N=2", "--report", str(tmp_path / "m.report"), "--json")
    assert finished.status == 0, finished.err
    found = json.loads(finished.out)
    assert found["operators"] == {"MatMul": 1, "Relu": 1}
    assert found["inputs"] == ["x: float32[2, 4]"]
    assert found["compared"]["differences"]["y"] < 1e-6
    assert found["report"]["step"]
    assert (tmp_path / "m.report").is_file()


def test_onnx__with_an_array__takes_its_shape(abele: Callable[..., Any], model: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    finished = abele("onnx", model, "--input", f"x={tmp_path / 'x.npy'}", "--against", "none")
    assert finished.status == 0, finished.err
    assert "x: float32[3, 4]" in finished.out


def test_onnx__check__lists_what_has_no_lowering(abele: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "n.onnx"
    path.write_bytes(parser.parse_model(TEXT.replace("Relu", "NonZero")).SerializeToString())
    finished = abele("onnx", str(path), "--check")
    assert finished.status == 1
    assert "no lowering" in finished.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "open dimensions have to be bound"),
        (("--shape", "N"), "--shape takes name=value"),
        (("--shape", "N=two"), "has no whole numbers"),
        (("--input", "x=none.npy"), "cannot be read"),
        (("--against", "nobody"), "--against takes"),
    ],
    ids=str,
)
def test_onnx__with_wrong_options__says_what_is_wrong(
    abele: Callable[..., Any], model: str, options: tuple[str, ...], words: str
) -> None:
    finished = abele("onnx", model, *options)
    assert finished.status != 0
    assert words in finished.err


def test_onnx__of_no_model__is_refused(abele: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"hello")
    finished = abele("onnx", str(tmp_path / "no.onnx"))
    assert finished.status != 0
    assert "holds no ONNX model" in finished.err
