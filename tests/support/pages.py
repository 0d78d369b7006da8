"""The snippets of a page: what they say, and running them one after the other as one program.

A page's ``python`` blocks share one module, whose file has the blocks at the lines that they have on the page, so that
tracebacks name the page's lines, and codelets find their source. A block must end in an error where the next block is
``text`` and begins with one.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
_ERROR = re.compile(r"(\w+Error): ")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: The word after the fence.
        code: Contents of the page.
        line: Number of its first line on the page.
        ends_in: The kind of error that it must end in, as the block after it says; empty for none.
    """

    language: str
    code: str
    line: int
    ends_in: str = ""


def pages() -> list[Path]:
    """README and all pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def pages_with(language: str) -> list[Path]:
    """Pages with a fence of a language, found without parsing: tests are collected from them."""
    return [page for page in pages() if f"```{language}" in page.read_text(encoding="utf-8")]


@functools.cache
def blocks(page: Path) -> tuple[Block, ...]:
    """The fenced blocks of a page."""
    tokens = [t for t in MarkdownIt().parse(page.read_text(encoding="utf-8")) if t.type == "fence"]
    found = []
    for token, after in zip(tokens, [*tokens[1:], None], strict=False):
        language = (token.info.split() or [""])[0]
        follows = after is not None and after.info == "text" and _ERROR.match(after.content)
        line = (token.map or [0])[0] + 2
        found.append(Block(language, token.content, line, follows.group(1) if follows else ""))
    return tuple(found)


def snippets(page: Path) -> list[Block]:
    """The Python blocks of a page."""
    return [block for block in blocks(page) if block.language == "python"]


def load_script(path: Path, name: str = "") -> ModuleType:
    """A new module of a script, under ``name`` or that of its file."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Data classes look their module up while they are made.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_page(page: Path, folder: Path) -> ModuleType:
    """Run the snippets of a page; the module in which they ran."""
    found = snippets(page)
    lines = [""] * sum(len(block.code.splitlines()) + block.line for block in found)
    for block in found:
        code = block.code.splitlines()
        lines[block.line - 1 : block.line - 1 + len(code)] = code
    path = folder / f"{page.stem}_page.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        for block in found:
            _run(block, module, str(path))
    finally:
        del sys.modules[path.stem]
    return module


def _run(block: Block, module: ModuleType, path: str) -> None:
    code = compile("\n" * (block.line - 1) + block.code, path, "exec")
    if not block.ends_in:
        exec(code, vars(module))
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011
        exec(code, vars(module))
    assert type(caught.value).__name__ == block.ends_in, f"{path}:{block.line}"


def names_without_import(page: Path) -> Iterator[str]:
    """Names that a snippet uses and only an earlier snippet of the page imports, with their lines."""
    imported: set[str] = set()
    for block in snippets(page):
        tree = ast.parse(block.code)
        own = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in imported - own:
                yield f"{page.name}:{block.line + node.lineno - 1}: {node.id}"
        imported |= own
