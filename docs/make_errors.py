"""Write errors.md, the page of errors: python docs/make_errors.py.

Meanings come from ``abele/errors.py``, examples from ``error_examples.py``, which are run for what they say, and the
places that raise a kind from the sources themselves.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import abele.errors

HERE = Path(__file__).parent
PAGE = HERE / "errors.md"
SOURCES = Path(abele.errors.__file__).parent
BASE = "AbeleError"

HEAD = """# Errors

Every error that Abele raises on purpose is an `AbeleError`. It says what is wrong, with the numbers that make it wrong,
and, where they are known, `at` which place, `because` of what, and what to `try`. Each kind below has its meaning, an
example with what it prints, and what to do. Programs can read the parts:

```python
import abele as ab
from abele.errors import AbeleError

try:
    ab.systems.get("bow2000")
except AbeleError as error:
    print(error.message, error.at, error.because, error.remedy)
```

Poplar's names for the kinds, such as `poplar.invalid_tile_mapping`, are classes derived from these or the same ones:
[from Poplar](poplar.md).
"""


def kinds() -> dict[str, type[abele.errors.AbeleError]]:
    """The kinds of error in the order in which ``abele/errors.py`` has them."""
    found = vars(abele.errors).items()
    return {name: kind for name, kind in found if isinstance(kind, type) and issubclass(kind, abele.errors.AbeleError)}


def examples() -> dict[str, object]:
    """The examples by kind."""
    spec = importlib.util.spec_from_file_location("abele_error_examples", HERE / "error_examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return dict(module.EXAMPLES)


def raised(code: str, folder: Path) -> BaseException | None:
    """Error of a program in a file of its own."""
    folder.mkdir()
    path = folder / "example.py"
    path.write_text(code + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.modules["example"] = os.getcwd(), module
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec.loader.exec_module(module)
    except Exception as error:
        return error
    finally:
        os.chdir(before)
        del sys.modules["example"]
    return None


def shown(error: BaseException, folder: Path) -> str:
    """An error as a traceback ends, with paths cut short."""
    text = f"{type(error).__name__}: {error}".replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")
    return re.sub(r"/\S*/src/abele/", "abele/", text)


def raising_rooms() -> dict[str, list[str]]:
    """The rooms whose sources make each kind of error."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        room = path.relative_to(SOURCES).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                found.setdefault(str(name), set()).add(room)
    return {name: sorted(rooms) for name, rooms in found.items()}


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, _overview(), *_sections()])


def _overview() -> str:
    rows = [f"| [`{name}`](#{name.lower()}) | {_meaning(kind)} |" for name, kind in kinds().items()]
    return "\n".join(["| kind | meaning |", "|---|---|", *rows, ""])


def _meaning(kind: type) -> str:
    first = (kind.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split()).replace("``", "`")


def _sections() -> Iterator[str]:
    rooms, known = raising_rooms(), examples()
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in kinds().items():
            yield _section(name, kind, known[name], rooms.get(name, []), Path(folder))


def _section(name: str, kind: type, example: object, rooms: list[str], folder: Path) -> str:
    bases = [base.__name__ for base in kind.__bases__]
    links = [f"[`{base}`](#{base.lower()})" if base in kinds() else f"`{base}`" for base in bases]
    lines = [f"## {name}", "", _meaning(kind)]
    if name != BASE:
        lines += ["", f"A kind of {' and of '.join(links)}."]
    code = getattr(example, "code", None)
    if code:
        error = raised(code, folder / name)
        assert type(error).__name__ == name, f"the example of {name} ends in {error!r}"
        assert error is not None
        lines += ["", "```python", code, "```", "", "```text", shown(error, folder / name), "```"]
    lines += ["", str(getattr(example, "advice", ""))]
    if rooms:
        lines += ["", "Raised by " + ", ".join(f"`{room}`" for room in rooms) + "."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
