"""Every snippet of the README and the documentation runs, and says what it imports."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import abele as ab
from abele.cli import main
from abele.expr import POPOPS, TABLE
from support.pages import ROOT, blocks, names_without_import, pages_with, run_page, snippets

QUOTING = ROOT / "docs" / "examples"
"""Pages that quote scripts; the tests of the examples run them and hold the quotes to them."""
RUN = [page for page in pages_with("python") if page.parent != QUOTING]
LONG = ("demo", "validate", "debug", "fit", "run", "serve", "view")
"""Commands of Abele that take long, stand for a session, or take a program: they have tests of their own."""


PRINTED = {
    "engine.md": "nothing has written it",
    "pva.md": "OnTileExecute dense/partials 934",
    "README.md": "[200. 200. 200.]",
}
"""Something that running a page prints."""


@pytest.fixture(autouse=True)
def own_operations() -> Iterator[None]:
    """Take operations that a page adds out of the table again after that page."""
    tables = (TABLE, POPOPS)
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", RUN, ids=ids)
def test_page__snippets_one_after_the_other__run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if page.name == "README.md":
        pytest.importorskip("torch", reason="needs PyTorch")
    if page.name == "pytorch_tutorial.md":
        pytest.importorskip("torch", reason="needs PyTorch")
        pytest.importorskip("sklearn", reason="needs scikit-learn")
    if page.name == "lightning.md":
        warnings.simplefilter("ignore")  # Lightning's own, of PyTorch's newer names.
        pytest.importorskip("lightning", reason="needs Lightning")
    if page.name == "onnx_export.md":
        pytest.importorskip("onnx", reason="needs onnx")
        pytest.importorskip("torch", reason="needs PyTorch")
    if page.name == "jax.md":
        pytest.importorskip("jax", reason="needs JAX")
    if page.name == "tensorflow_names.md" and importlib.util.find_spec("keras") is None:
        pytest.skip("needs Keras")
    if page.name == "onnx.md":
        pytest.importorskip("onnx", reason="needs onnx")
    if page.name == "report.md":
        pytest.importorskip("matplotlib", reason="needs matplotlib")
    if page.name == "tessellate.md":
        pytest.importorskip("jax", reason="needs JAX")
    if page.name in ("cpp_codelets.md", "errors.md", "tessellate.md"):
        pytest.importorskip("ziglang", reason="needs a C++ compiler")
    if page.name in ("pva.md", "errors.md"):
        pytest.importorskip("duckdb", reason="needs DuckDB")
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)
    out = capsys.readouterr().out
    for name, words in PRINTED.items():
        assert name != page.name or words in out


@pytest.mark.parametrize("page", RUN, ids=ids)
def test_page__each_snippet__imports_what_it_uses(page: Path) -> None:
    assert list(names_without_import(page)) == []


def test_quoting_pages__each__ends_in_the_whole_program() -> None:
    for page in QUOTING.glob("*.md"):
        if snippets(page):
            included = [
                line.split()[-1] for line in page.read_text(encoding="utf-8").splitlines() if "literalinclude" in line
            ]
            assert included
            assert all((page.parent / name).is_file() for name in included)


def commands() -> list[str]:
    """Every line of a console block that is quick to run, once."""
    found: dict[str, None] = {}
    for page in pages_with("console"):
        for block in blocks(page):
            if block.language == "console":
                lines = [line[2:].split("  #")[0].strip() for line in block.code.splitlines() if line.startswith("$ ")]
                found.update(dict.fromkeys(line for line in lines if _is_quick(shlex.split(line, comments=True))))
    return list(found)


def _is_quick(words: list[str]) -> bool:
    return words[0] == "abele" and words[1] not in LONG


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that commands of the pages read."""
    graph, folder = ab.Graph("bow"), tmp_path_factory.mktemp("files")
    x = graph.variable(ab.f32, (64,), name="x").map_linear()
    report = ab.compile_program(graph, ab.Copy(x, graph.variable(ab.f32, (64,), name="y").map(1))).report
    for name in ("d.abele-report", "run.abele-report"):
        report.save(folder / name)
    (folder / "lengths.csv").write_text("500\n120\n260\n250\n")
    return folder


@pytest.mark.parametrize("command", commands())
def test_command__of_a_console_block__exits_with_0(
    command: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--sql" in command:
        pytest.importorskip("duckdb", reason="needs DuckDB")
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code, capsys.readouterr().err
