"""Write onnx_operators.md, the table of ONNX operators: python docs/make_onnx_operators.py."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import onnx

from abele.frontends.onnx.registry import STANDARD, find, latest_handler
from abele.onnx import supported

PAGE = Path(__file__).parent / "onnx_operators.md"
NEWEST = 28
"""Newest opset of the onnx that the page was written with."""
HEAD = """# ONNX operators

Operators of ONNX with a lowering, by the module of `abele.frontends.onnx.ops` that has it; the table is written by
`docs/make_onnx_operators.py`. A number is the opset of an
operator's last change.
[From ONNX](onnx.md) says what is read, and how.
"""
LEFT = """
## Without a lowering

{names}.

Their results have sizes that depend on values (NonZero, Compress, Unique), or they hold strings, sequences and
optionals, complex numbers, trees or images. Where such a node's operands are known, it is computed while
the model is read.
"""


def schemas() -> dict[str, list[int]]:
    """Versions of each standard operator, oldest first."""
    found = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == STANDARD and not schema.deprecated:
            found[schema.name].add(schema.since_version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}


def page() -> str:
    """The page."""
    versions, newest = schemas(), onnx.defs.onnx_opset_version()
    families = defaultdict(list)
    left = []
    for name in versions:
        handled = find(STANDARD, name, newest) or latest_handler(STANDARD, name)
        if handled is not None:
            families[handled].append(name)
        elif name in supported():
            families["function"].append(name)
        else:
            left.append(name)
    by_module = defaultdict(list)
    for handled, several in families.items():
        module = "function" if handled == "function" else handled.handler.__module__.rpartition(".")[2]
        by_module[module].extend(several)
    lines = [HEAD, f"Of {len(versions)} standard operators {len(versions) - len(left)} are read.\n"]
    lines += ["| family | operators |", "|---|---|"]
    for module in sorted(by_module, key=lambda m: (m == "function", m)):
        title = "functions that ONNX defines them by" if module == "function" else f"`{module}`"
        each = ", ".join(f"{name} ({versions[name][-1]})" for name in sorted(by_module[module]))
        lines.append(f"| {title} | {each} |")
    return "\n".join(lines) + "\n" + LEFT.format(names=", ".join(left))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
