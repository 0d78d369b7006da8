"""Files of codelets, loaded once, and one way to run a vertex of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele.codelet import CodeletDef, compile_codelet
from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.loading import CppCodelets
from abele.codelet.cpp.toolchain import find_compiler
from abele.codelet.tables import build_tables
from abele.errors import CodeletLoadError

FILES = Path(__file__).parent / "files"
Run = Callable[..., dict[str, Any]]


def has_compiler() -> bool:
    try:
        find_compiler()
    except CodeletLoadError:
        return False
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if has_compiler():
        return
    skip = pytest.mark.skip(reason="no C++ compiler: neither clang++ nor ziglang is installed")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(skip)


class Lazily(Mapping[str, CodeletDef]):
    """Codelets of a file, or of source text, that are loaded when they are first asked for: collecting tests compiles
    nothing."""

    def __init__(self, source: str | Path) -> None:
        self._source = source

    @cached_property
    def _found(self) -> CppCodelets:
        return load_codelets(self._source)

    def __getitem__(self, name: str) -> CodeletDef:
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # as pytest asks for while it collects
            raise AttributeError(name)
        return getattr(self._found, name)


@cache
def load(name: str) -> Lazily:
    return Lazily(FILES / name)


def fresh(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: [a.copy() for a in v] if isinstance(v, list) else np.copy(v) for k, v in fields.items()}


def run(definition: CodeletDef, times: int = 1, **fields: Any) -> dict[str, Any]:
    """Fields of a vertex after it has run; checks that code that counts does the same, and counts the same."""
    compiled = compile_codelet(definition)
    counted = fresh(fields)
    tables = build_tables(definition, [counted])
    for _ in range(times):
        slots = tables.count(compiled.run_counted)
    if not compiled.data_dependent:
        np.testing.assert_array_equal(tables.count(compiled.slots or 0), slots)
    plain = fresh(fields)
    tables = build_tables(definition, [plain])
    for _ in range(times):
        tables.run(compiled.run)
    for name, value in plain.items():
        np.testing.assert_array_equal(
            np.concatenate([np.ravel(v) for v in value]) if isinstance(value, list) else value,
            np.concatenate([np.ravel(v) for v in counted[name]]) if isinstance(value, list) else counted[name],
        )
    return plain


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def zeros(n: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(n, dtype=dtype)
