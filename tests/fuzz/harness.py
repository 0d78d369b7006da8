"""The fuzzer's other side: hands files to the server, and tells good ends from bad ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.models import changed_model, lay_out
from fuzz.recipes import Recipe, changed

SERVER = Path(__file__).with_name("server.py")
GOOD = ("ok", "refused", "stopped", "endless")
"""Ends that a file may come to, beside an AbeleError: a program from elsewhere may run forever, in a vertex even."""


class Server:
    """One server process."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def tried(self, recipe: Recipe, content: bytes, seconds: float = 10.0) -> dict[str, Any]:
        """Result of loading a changed file within so many seconds of processor time."""
        kind = next((k for k in ("report", "model") if recipe.base.endswith(f"-{k}")), "executable")
        path = self._folder / ("beside/changed" if kind == "model" else "changed")
        path.write_bytes(changed_model(recipe, content) if kind == "model" else changed(recipe, content))
        mode = "tiles" if len(recipe.text()) % 3 == 0 else "native"
        request = {"path": str(path), "kind": kind, "seconds": seconds, "mode": mode}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """A server that keeps what it compiles in a folder."""
    lay_out(folder)
    environment = {**os.environ, "ABELE_CACHE_DIR": str(folder / "cache"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(SERVER)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield Server(process, folder)
    finally:
        process.communicate(timeout=30)


def is_good(result: dict[str, Any]) -> bool:
    """True if an end is one that a hostile file may come to."""
    return result["outcome"] in GOOD or str(result["outcome"]).startswith("error ")
