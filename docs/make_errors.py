"""Write errors.md, the page of errors: python docs/make_errors.py.

Meanings come from ``abele/errors.py``, examples from ``error_examples.py``, which are run for what they say.
"""

from __future__ import annotations

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
BASE = "AbeleError"

HEAD = """# Errors

Every error that Abele raises on purpose is an `AbeleError`: what is wrong, with its numbers, and, where they are known,
`at` which place, `because` of what, and what to `try`. Programs can read the parts:

```python
import abele as ab
from abele.errors import AbeleError

try:
    ab.systems.get("bow2000")
except AbeleError as error:
    print(error.message, error.at, error.because, error.remedy)
```

Poplar's names for the kinds, such as `poplar.invalid_tile_mapping`, are these or derived from them:
[from Poplar](poplar.md#exceptions). The kinds:
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


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, _overview(), *_sections()])


def _overview() -> str:
    return ", ".join(f"[{name}](#{name.lower()})" for name in kinds()) + ".\n"


def _meaning(kind: type) -> str:
    first = (kind.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split()).replace("``", "`")


def _sections() -> Iterator[str]:
    known = examples()
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in kinds().items():
            yield _section(name, kind, known[name], Path(folder))


def _section(name: str, kind: type, example: object, folder: Path) -> str:
    bases = [base.__name__ for base in kind.__bases__]
    links = [f"[`{base}`](#{base.lower()})" if base in kinds() else f"`{base}`" for base in bases]
    meaning = _meaning(kind)
    others = [link for link, base in zip(links, bases, strict=True) if base != BASE]
    if name != BASE and others:
        meaning += f" Also {' and '.join(others)}."
    lines = [f"## {name}", "", meaning]
    code = getattr(example, "code", None)
    if code:
        error = raised(code, folder / name)
        assert type(error).__name__ == name, f"the example of {name} ends in {error!r}"
        assert error is not None
        lines += ["", "```python", code, "```", "", "```text", shown(error, folder / name), "```"]
    advice = str(getattr(example, "advice", ""))
    lines += ["", advice] if advice else []
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
