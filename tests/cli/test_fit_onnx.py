"""``abele fit`` and ``abele view`` of ONNX files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

from onnx import ModelProto, helper, numpy_helper, parser

from abele import onnx as abele_onnx

Run = Callable[..., Any]
HOW = ("--system", "bow-2000", "--batch", "64", "--micro-batch", "4", "--check", "0")
LAYERS, WIDTH = 4, 32


def network(batch: str = "batch") -> ModelProto:
    """Four layers, in modules as exporters name them."""
    nodes, before = "", "x"
    for n in range(LAYERS):
        after = f"h{n}" if n < LAYERS - 1 else "scores"
        nodes += f"g{n} = Gemm ({before}, w{n}) {after} = Tanh (g{n})\n"
        before = after
    head = (
        f'<ir_version: 8, opset_import: ["" : 17]> net (float[{batch}, {WIDTH}] x) => (float[{batch}, {WIDTH}] scores)'
    )
    proto = parser.parse_model(f"{head} {{ {nodes} }}")
    for number, node in enumerate(proto.graph.node):
        node.name = f"/layers.{number // 2}/{node.op_type}"
    draw = np.random.default_rng(0)
    for n in range(LAYERS):
        weight = draw.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weight, f"w{n}"))
    return proto


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The network as a file."""
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    return str(path)


@pytest.mark.parametrize("train", [(), ("--train", "cross_entropy", "--optimizer", "momentum")], ids=["runs", "trains"])
def test_fit__onnx_file__ranking_and_code_that_runs(abele: Run, file: str, train: tuple[str, ...]) -> None:
    found = json.loads(abele("fit", file, *HOW, *train, "--json").out)
    assert found["smallest_ipus"] == 1
    plan = found["ranking"][0]
    made: dict[str, Any] = {}
    exec(found["code"], made)
    count = plan["micro_batch"] * plan["accumulation"] * plan["replicas"]
    assert count == 64
    x = np.ones((count, WIDTH), np.float32)
    if train:
        assert "Sgd(momentum=0.9)" in found["code"]
        assert np.isfinite(made["step"](x=x, target=np.zeros(count, np.int64))["loss"]).all()
    else:
        session = made["session"]
        assert session.run([x]).outputs[0].shape == (count, WIDTH)


def test_fit__plan_of_several_stages__gives_what_one_ipu_gives(file: str) -> None:
    found = abele_onnx.fit(file, system="bow-2000", batch=64, micro_batches=[4], check=0)
    ranked = next(r for r in found.ranking if r.plan.stages == 4)
    # A stage begins with the first node of a module, by the tensor that this makes.
    assert found.stages(ranked) == {"g1": 1, "g2": 2, "g3": 3}
    made: dict[str, Any] = {}
    exec(found.code(ranked), made)
    x = np.random.default_rng(1).normal(size=(64, WIDTH)).astype(np.float32)
    (scores,) = made["session"].run([x]).outputs
    np.testing.assert_allclose(scores, abele_onnx.load(file, {"batch": 64}).infer(x)["scores"], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_fit__fixed_batch__is_the_size_of_the_micro_batch(abele: Run, tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    path.write_bytes(network("8").SerializeToString())
    found = json.loads(abele("fit", str(path), "--system", "bow-2000", "--check", "0", "--json").out)
    assert {plan["micro_batch"] for plan in found["ranking"]} == {8}
    wrong = abele("fit", str(path), *HOW)
    assert wrong.status == 2
    assert "takes 8 samples, not 4" in wrong.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tensor", "2"), "no plan that says how its layers are split"),
        (("--optimizer", "adm", "--train", "mse"), "did you mean adam?"),
        (("--sequence", "8"), "no open dimensions that are called a sequence"),
        (("--train", "nothing"), "nothing"),
        (("--shape", "batches=8"), "batches"),
    ],
    ids=str,
)
def test_fit__option_that_an_onnx_file_lacks__is_said(
    abele: Run, file: str, options: tuple[str, ...], words: str
) -> None:
    finished = abele("fit", file, *HOW, *options)
    assert finished.status == 2
    assert words in finished.err


def test_fit__options_of_onnx_files_for_another_model__are_refused(abele: Run) -> None:
    finished = abele("fit", "bert-base", "--train", "mse")
    assert finished.status == 2
    assert "are of ONNX files" in finished.err


def test_fit__changes_of_an_onnx_file__says_that_it_fits(abele: Run, file: str) -> None:
    said = abele("fit", file, "--system", "bow-2000", "--changes").out
    assert said.strip().endswith("it fits")


@pytest.mark.slow
def test_fit__sequence__binds_the_dimension_of_that_name(abele: Run, tmp_path: Path) -> None:
    proto = network()
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, ["batch", "seq_len", WIDTH]))
    for node in proto.graph.node:
        node.op_type = node.op_type.replace("Gemm", "MatMul")
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("scores", 1, ["batch", "seq_len", WIDTH]))
    path = tmp_path / "sequence.onnx"
    path.write_bytes(proto.SerializeToString())
    data = json.loads(abele("fit", str(path), *HOW, "--sequence", "4,8", "--json").out)
    assert "'seq_len': 8" in data["sequences"]["8"]["code"]


def test_view__onnx_file__page_has_the_names_of_its_nodes(abele: Run, file: str, tmp_path: Path) -> None:
    page = tmp_path / "net.html"
    finished = abele("view", file, "--shape", "batch=4", "--html", str(page))
    assert finished.status == 0, finished.err
    report = tmp_path / "net.report"
    assert abele("onnx", file, "--shape", "batch=4", "--report", str(report), "--against", "none").status == 0
    steps = abele("report", str(report)).out
    assert re.search(r"layers\.1", steps)
    assert "net.onnx:3" in steps
    assert abele("view", str(report), "--shape", "batch=4", "--html", str(page)).status == 2
