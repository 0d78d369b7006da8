"""The front door: quick to open, and everything behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import abele as ab


def _modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import__of_the_package__loads_no_room_and_no_library():
    modules = _modules_after("import abele")
    assert not modules & {"numpy", "torch", "jax", "keras", "llvmlite", "rich", "typer", "abele.graph"}


def test_import__of_graph_and_engine__loads_no_torch():
    modules = _modules_after("import abele as ab; ab.Graph, ab.Engine, ab.popops")
    assert not modules & {"torch", "jax", "keras", "scipy", "sklearn", "rich", "typer"}


@pytest.mark.parametrize("statement", ["from abele import jax", "from abele.keras import ipu"])
def test_import__of_a_front_end_without_jax__says_what_to_install(statement: str):
    code = f"""
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *given: None if name == "jax" else found(name, *given)
try:
    {statement}
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "need JAX, which is not installed" in done.stdout, done.stderr
    assert "pip install 'abele[jax]'" in done.stdout


@pytest.mark.parametrize("name", ab.__all__)
def test_facade__every_public_name__is_there(name):
    assert getattr(ab, name) is not None
    assert name in dir(ab)


def test_facade__unknown_name__is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Grph'"):
        ab.Grph  # noqa: B018


def test_facade__codelet__decorates_also_after_its_room_was_imported(tmp_path: Path):
    code = """
import abele.codelet, abele as ab
from abele import f32

@ab.codelet
class Empty(ab.Vertex):
    x: ab.Input[f32]
    def compute(self):
        pass

print(Empty.codelet.name)
"""
    path = tmp_path / "program.py"
    path.write_text(code)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Empty", done.stderr
