"""The scripts of ``examples/popart`` do what they say, with small settings, and run under PopART's own name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.pages import load_script

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("sklearn", reason="needs scikit-learn")

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "popart"


def test_mnist__a_few_epochs__classifies_most_images() -> None:
    assert load_script(SCRIPTS / "mnist.py", "popart_mnist").main(epochs=3, count=800) > 0.7


def test_program__that_imports_popart__runs_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from abele.popart.__main__ import main

    program = tmp_path / "program.py"
    program.write_text("import popart\nfrom popart import Builder\nprint(popart.Builder is Builder, popart.SGD)\n")
    monkeypatch.setattr(sys, "argv", ["abele.popart", str(program)])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "popart", sys.modules["abele.frontends.popart_enums"])
    main()
    assert "True <class 'abele.frontends.popart.optimisers.SGD'>" in capsys.readouterr().out


def test_install__beside_another_package__is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from abele.errors import MissingPackageError
    from abele.popart import install

    monkeypatch.setitem(sys.modules, "popart", sys.modules["json"])
    with pytest.raises(MissingPackageError, match="there is a package popart already"):
        install()
