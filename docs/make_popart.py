"""Write popart_names.md, the tables of PopART's names: python docs/make_popart.py."""

from __future__ import annotations

import inspect
from pathlib import Path

from abele import popart
from abele.frontends.popart.graphcore import SIGNATURES
from abele.frontends.popart.options import HONOURED

PAGE = Path(__file__).parent / "popart_names.md"

HEAD = """# PopART's names

`python docs/make_popart.py` writes this page from the code. [From PopART](popart.md) has the programs.

## What `abele.popart` has

| name | kind |
|---|---|
"""
OPERATORS = """
## Operators of `ai.graphcore`

The method of `builder.aiGraphcore`, what it takes after the list of inputs, and whether it has a lowering. Those of
`builder.aiOnnx` follow from ONNX's schemas, opset 6 to 11; `popart.getUnsupportedOperations(10)` lists those without
one.

| method | takes | lowering |
|---|---|---|
"""
OPTIONS = """
## Options of a session

Each name, its default, and whether it changes the program. Those that do not are checked and kept: they choose
schedules and caches of the original compiler.

| option | default | changes the program |
|---|---|---|
"""


def kind(name: str) -> str:
    """The kind of a name of the module."""
    value = getattr(popart, name)
    if isinstance(value, type):
        return (
            "exception" if issubclass(value, Exception) else "enumeration" if hasattr(value, "__members__") else "class"
        )
    return "function" if inspect.isfunction(value) else f"`{value!r}`"


def page() -> str:
    """The page."""
    names = "".join(f"| `{name}` | {kind(name)} |\n" for name in sorted(popart.__all__, key=str.lower))
    there = {o.type for o in popart.getSupportedOperations() if o.domain == "ai.graphcore"}
    rows = []
    for method, own in sorted(SIGNATURES.items(), key=lambda entry: entry[0].lower()):
        taken = [p for p in own.signature.parameters.values() if p.name not in ("args", "debugContext")]
        shown = ", ".join(p.name.rstrip("_") if p.default is p.empty else str(p).rstrip("_") for p in taken)
        rows.append(f"| `{method}` | {f'`{shown}`' if shown else ''} | {'yes' if own.name in there else 'no'} |\n")
    options = []
    for name, value in sorted(vars(popart.SessionOptions()).items()):
        plain = isinstance(value, (bool, int, float, str, list, dict, set)) or value is None
        text = f"{value!r}" if plain else type(value).__name__
        text = f"{type(value).__name__}.{value.name}" if hasattr(value, "name") else text
        text = "{Instrumentation.Outer}" if name == "hardwareInstrumentations" else text
        options.append(f"| `{name}` | `{text}` | {'yes' if name in HONOURED else ''} |\n")
    return HEAD + names + OPERATORS + "".join(rows) + OPTIONS + "".join(options)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
