"""``abele onnx``: check an ONNX model, run it, hold it against onnx's own results, and print its costs."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from abele.cli.output import console, print_json
from abele.cli.shapes import pair, shapes_of
from abele.errors import FileFormatError, InvalidOptionError
from abele.terminal import shown_text
from abele.words import counted

if TYPE_CHECKING:
    from abele.arrays import Array
    from abele.onnx import Model

AGAINST = ("reference", "onnxruntime", "none")


def onnx_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An ONNX model.")],
    shape: Annotated[
        list[str] | None, typer.Option("--shape", help="Shape of an input, or a dimension: input=1,3,224,224, batch=1.")
    ] = None,
    input: Annotated[
        list[str] | None, typer.Option("--input", help="Array of an input: name=file.npy; others are random.")
    ] = None,
    against: Annotated[
        str, typer.Option("--against", help="What to hold results against: reference, onnxruntime or none.")
    ] = "reference",
    system: Annotated[str | None, typer.Option("--system", help="Preset (abele systems) or description file.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write the report to this file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Look at the model alone: compile and run nothing.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of random inputs.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the model in FILE, list its operators, run it once, compare its results and print what it costs."""
    from abele.frontends.onnx.files import read_model
    from abele.frontends.onnx.support import count_operators, unsupported_nodes
    from abele.onnx import load

    if against not in AGAINST:
        raise InvalidOptionError(f"--against takes {', '.join(AGAINST)}, got {against!r}")
    proto, _ = read_model(file)
    found: dict[str, Any] = {
        "model": proto.graph.name,
        "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        "ir_version": proto.ir_version,
        "opsets": {o.domain or "ai.onnx": o.version for o in proto.opset_import},
        "operators": count_operators(proto),
        "missing": unsupported_nodes(proto),
    }
    if check or found["missing"]:
        _print(found, json)
        if found["missing"]:
            raise typer.Exit(1)
        return
    given = _arrays(input or [])
    model = load(file, {**{name: a.shape for name, a in given.items()}, **shapes_of(shape or [])})
    if system is not None:
        model.configure(system)
    feeds = _feeds(model, given, seed)
    made = model.infer(feeds)
    found["inputs"], found["outputs"] = ([str(p) for p in ports] for ports in (model.inputs, model.outputs))
    found["compared"] = _compared(model, feeds, made, against)
    found["report"] = model.report.to_json() if json else shown_text(model.report.summary())
    if report is not None:
        model.report.save(report)
        typer.echo(f"written: {report}", err=True)
    found["next"] = _next_steps(file, shape or [], report)
    _print(found, json)


def _next_steps(file: Path, shapes: Sequence[str], report: Path | None) -> list[str]:
    """Commands that go on from here: where the cycles go, and how to spread the model over a machine."""
    options = "".join(f" --shape {shlex.quote(text)}" for text in shapes)
    name, written = shlex.quote(str(file)), shlex.quote(str(report)) if report else ""
    look = [f"abele view {written}", f"abele report {written}"] if written else [f"abele view {name}{options}"]
    return [*look, f"abele fit {name}{options}", f"abele fit {name}{options} --train cross_entropy"]


def _arrays(given: Sequence[str]) -> dict[str, Array]:
    found = {}
    for text in given:
        name, value = pair(text, "--input")
        try:
            found[name] = np.load(value, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FileFormatError(f"--input {text!r} cannot be read: {error}", remedy="a file of numpy.save") from None
    return found


def _feeds(model: Model, given: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Arrays of all inputs: those given, and random ones; whole numbers are 0 and 1, which all tables have."""
    draw = np.random.default_rng(seed)
    unknown = given.keys() - {p.name for p in model.inputs}
    if unknown:
        raise InvalidOptionError(
            f"--input names {sorted(unknown)[0]!r}, the model's inputs are {', '.join(p.name for p in model.inputs)}"
        )
    feeds = {}
    for port in model.inputs:
        if port.name in given:
            feeds[port.name] = given[port.name]
        elif port.dtype.kind in "iub":
            feeds[port.name] = draw.integers(0, 2, port.shape).astype(port.dtype)
        else:
            feeds[port.name] = draw.normal(size=port.shape).astype(port.dtype)
    return feeds


def _compared(
    model: Model, feeds: Mapping[str, Array], made: Mapping[str, Array], against: str
) -> dict[str, Any] | None:
    """By how much results differ from another implementation's, over the largest of these; None without one."""
    if against == "none":
        return None
    try:
        if against == "onnxruntime":
            if importlib.util.find_spec("onnxruntime") is None:
                raise InvalidOptionError("--against onnxruntime: it is not installed", remedy="pip install onnxruntime")
            import onnxruntime

            wanted = onnxruntime.InferenceSession(model.proto.SerializeToString()).run(None, dict(feeds))
        else:
            from onnx.reference import ReferenceEvaluator

            wanted = ReferenceEvaluator(model.proto).run(None, dict(feeds))
    except InvalidOptionError:
        raise
    except Exception as error:  # Whatever it finds wrong with the model.
        return {"against": against, "failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    differences = {}
    for (name, got), right in zip(made.items(), wanted, strict=False):
        wide, exact = (np.asarray(a, np.float64) for a in (got, right))
        if wide.shape != exact.shape:
            differences[name] = float("inf")
            continue
        size = float(np.max(np.abs(exact), initial=0.0, where=np.isfinite(exact))) or 1.0
        differences[name] = float(np.nanmax(np.abs(wide - exact), initial=0.0)) / size
    return {"against": against, "differences": differences}


def _print(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    out = console()
    opsets = ", ".join(f"{domain} {version}" for domain, version in found["opsets"].items())
    by = f", by {found['producer']}" if found["producer"] else ""
    out.print(Text(f"{found['model'] or 'model'}: {opsets}, IR {found['ir_version']}{by}", style="bold"))
    for kind in ("inputs", "outputs"):
        for port in found.get(kind, ()):
            out.print(Text(f"  {kind[:-1]:<7} {port}"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column("operator", no_wrap=True)
    table.add_column("nodes", justify="right")
    table.add_column("")
    for name, count in found["operators"].items():
        table.add_row(Text(name), f"{count:,}", Text("no lowering", "red") if name in found["missing"] else "")
    out.print(table)
    if found["missing"]:
        out.print(Text(f"{counted(len(found['missing']), 'operator')} without a lowering", style="red"))
        return
    compared = found.get("compared")
    if compared is not None:
        if "failed" in compared:
            out.print(Text(f"{compared['against']} does not run it: {compared['failed']}", style="dim"))
        for name, difference in compared.get("differences", {}).items():
            out.print(Text(f"  {name}: {difference:.2g} of the largest off {compared['against']}'s"))
    if "report" in found:
        out.print(Text(found["report"]))
    for number, command in enumerate(found.get("next", ())):
        out.print(Text(f"{'next: ' if not number else '      '}{command}"), soft_wrap=True)
