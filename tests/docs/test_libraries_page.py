"""The page on the libraries: its code runs, and every name in it is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import abele.errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "libraries.md").read_text(encoding="utf-8")
CODE = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
LIBRARIES = [
    importlib.import_module(f"abele.poplibs.{name}")
    for name in (
        "poputil",
        "popops",
        "poplin",
        "popnn",
        "poprand",
        "gcl",
        "popnn.lstm",
        "popnn.gru",
        "poplin.multiconv",
        "popsparse",
        "popsparse.static_",
        "popsparse.dynamic",
        "popsparse.experimental",
        "lowrank",
    )
]
OF_CALLS = {"None", "options", "op", "prog", "mode", "x", "x_in_place", "x_with_output", "use_scaled_gradient"}
"""Words of signatures."""


def test_page__code__runs() -> None:
    names: dict[str, object] = {}
    for block in CODE.findall(PAGE):
        exec(compile(block, "libraries.md", "exec"), names)
    assert names["z"].shape == (384, 4096)
    assert names["rows"].shape == (32, 1, 64)


ABSENT = PAGE[PAGE.index("## What is left out") : PAGE.index("## What may surprise you")]
"""Names that the page says are absent, with those in their place."""


def test_page__left_out__is_not_there() -> None:
    first = [line.split("|")[1] for line in ABSENT.splitlines() if line.startswith("| ")][1:]
    for name in re.findall(r"`(\w+)`", " ".join(first)):
        assert not any(hasattr(library, name) for library in LIBRARIES), name


def test_page__names__are_in_the_libraries() -> None:
    text = CODE.sub("", PAGE).replace(ABSENT, "")
    quoted = {
        re.sub(r"^\w+\.", "", word.split("(")[0]) for word in re.findall(r"`([a-zA-Z0-9_.]+(?:\([^`]*\))?)`", text)
    }
    modules = {"poputil", "popops", "poplin", "popnn", "poprand", "gcl", "popsparse", "lowrank", "poplibs", "errors"}
    for name in sorted(quoted - modules - OF_CALLS):
        if name.startswith("_") or name.endswith("_"):
            continue  # The ending of a name, or its beginning.
        is_option = re.fullmatch(r"[a-z]+[A-Z]\w+", name) is not None
        found = any(hasattr(library, name) for library in LIBRARIES) or hasattr(abele.errors, name)
        assert found or is_option, name
