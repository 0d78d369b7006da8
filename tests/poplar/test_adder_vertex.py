"""The introduction's AdderVertex program under both name sets, against NumPy."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from abele import poplar

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def expected() -> np.ndarray:
    t1 = np.arange(20, dtype=np.float32).reshape(4, 5)
    return np.array([t1[1, 1] + t1[3, 1] + 0.5, t1[0, 3] + t1[2, 2] + 0.5], dtype=np.float32)


@pytest.mark.parametrize("name", ["adder_vertex_poplar", "adder_vertex"])
def test_adder_vertex__both_name_sets__give_numpys_numbers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.testing.assert_array_equal(load(name).main(), expected())
    out = capsys.readouterr().out
    assert "t2[0] = 22.5, t2[3] = 15.5" in out
    assert "1 compute set · 2 vertices · 6 edges" in out


def test_adder_vertex__both_name_sets__cost_the_same() -> None:
    cycles = []
    for name, make in (("adder_vertex_poplar", "build"), ("adder_vertex", "adder")):
        with getattr(load(name), make)() as engine:
            cycles.append(engine.report.cycles().total)
    assert cycles[0] == cycles[1] > 0


def test_adder_vertex__slice_of_the_introduction_as_it_stands__does_not_fit_the_scalar_field() -> None:
    example = load("adder_vertex_poplar")
    g = poplar.Graph(poplar.IPUModel().createDevice())
    g.addCodelets(example.AdderVertex)
    t1 = g.addVariable(poplar.FLOAT, [4, 5], "t1")
    v = g.addVertex(g.addComputeSet("cs"), "AdderVertex", {"x": t1[1][1], "z": t1[0][0], "bias": 0.5})
    g.connect(t1.slice([3, 1], [4, 3]), v["y"])
    g.setTileMapping(v, 0)
    with pytest.raises(poplar.graph_connection_error, match=r"field AdderVertex\.y does not fit"):
        _ = v.compute_set.groups


def test_adder_vertex__cpp_text_of_the_introduction__gives_numpys_numbers(tmp_path: Path) -> None:
    if shutil.which("clang++") is None and importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs clang or the cpp extra")
    example = load("adder_vertex_poplar")
    source = tmp_path / "codelets.cpp"
    source.write_text(example.CPP, encoding="utf-8")
    np.testing.assert_array_equal(example.main(source), expected())
