"""Published rates of language models on IPUs beside predictions: ``abele validate --llm FILE``.

A row is known by its workload and metric, and its sizes are read from its setting: "TP=4, batch 12, seq 256, … group
size 64" is a step over 4 IPUs. What is not modelled, such as accuracies and other chips, is listed with the reason.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from abele.errors import AbeleError, FileFormatError
from abele.llm.sizing.formats import check_format
from abele.llm.sizing.presets import GPT_J_6B, model_named
from abele.machine import systems
from abele.validation import llm_attention
from abele.validation.figures import Bars, Comparison, Figure
from abele.validation.llm_models import EncoderRun, encoder_cost, streamed_step_seconds

BARS = Bars(0.15)
"""Largest errors of rates of whole models."""
COLUMNS = ("source", "chip", "n_chips", "workload", "setting", "dtype", "metric", "value", "unit")
Row = Mapping[str, str]
_LARGEST_FILE = 1 << 24
"""Bytes of a file, at most."""
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Batches that are tried until one does not fit, as they were published."""


@dataclass(frozen=True)
class KnownRows:
    """A kind of rows.

    Attributes:
        key: Name of the comparison.
        title: Subject of the comparison.
        about: Method, and the likely reason of differences.
        takes: True for a row of the kind.
        figure: The prediction and the published value of a row.
    """

    key: str
    title: str
    about: str
    takes: Callable[[Row], bool]
    figure: Callable[[Row], Figure]


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV.

    Raises:
        FileFormatError: It lacks columns, is no text, or is very large.
    """
    if path.stat().st_size > _LARGEST_FILE:
        raise FileFormatError(f"{path} has more than {_LARGEST_FILE:,} B")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise FileFormatError(
                    f"{path} has no column {missing[0]!r}", because=f"needed are {', '.join(COLUMNS)}"
                )
            return [{name: (fields.get(name) or "").strip() for name in COLUMNS} for fields in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path} is no CSV: {error}") from error


def compare(
    path: Path, *, progress: Callable[[str], None] | None = None
) -> tuple[list[Comparison], tuple[str, ...], tuple[str, ...]]:
    """Comparisons by kind, rows that could not be built, and remarks on what is not modelled.

    Args:
        path: The CSV.
        progress: Called with the name of each row before it is compiled.

    Raises:
        FileFormatError: The CSV lacks columns, or a known row lacks sizes.
    """
    rows = read_rows(path)
    attention = llm_attention.attention_rows(rows, path.name)
    found, failures = llm_attention.compare(attention, progress=progress)
    failed, taken = list(failures), len(attention)
    for kind in KINDS:
        own = [row for row in rows if kind.takes(row)]
        taken += len(own)
        figures = _figures(kind, own, failed, progress)
        if figures:
            found.append(Comparison(kind.key, kind.title, kind.about, tuple(figures), BARS))
    rest = [row for row in rows if not any(k.takes(row) for k in KINDS) and not llm_attention.is_attention(row)]
    return found, tuple(failed), tuple(_remarks(rest, taken))


def _figures(
    kind: KnownRows, rows: Sequence[Row], failed: list[str], progress: Callable[[str], None] | None
) -> list[Figure]:
    made = []
    for row in rows:
        if progress is not None:
            progress(f"{row['workload']}: {row['setting']}")
        try:
            made.append(kind.figure(row))
        except FileFormatError:
            raise
        except AbeleError as error:
            failed.append(f"{row['workload']}: {row['setting']}: {type(error).__name__}: {error.message}")
    return made


# Reading of rows.


def _number(row: Row, pattern: str, what: str, least: int = 1) -> int:
    """A whole number of a setting.

    Raises:
        FileFormatError: It is missing, or out of range.
    """
    found = re.search(pattern, row["setting"])
    if found is None or not least <= int(found[1]) <= 1 << 20:
        raise FileFormatError(
            f"the setting {row['setting']!r} names no {what}", at=row["workload"], because=f"{pattern} is looked for"
        )
    return int(found[1])


def _value(row: Row) -> float:
    try:
        value = float(row["value"])
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12:
        raise FileFormatError(f"a value of {row['value']!r}", at=f"{row['workload']}: {row['setting']}")
    return value


def _figure(row: Row, name: str, predicted: float) -> Figure:
    return Figure(name, row["workload"], predicted, _value(row), row["unit"], row["source"])


# Decoders whose weights are streamed.


def _system_of(row: Row, group: int) -> str:
    """The machine: Bow where the row says so, else Mk2; as large as the group needs."""
    small = "bow-2000" if "Bow" in row["chip"] else "m2000"
    large = "bow-pod" if "Bow" in row["chip"] else "pod"
    return small if group <= 4 else f"{large}16" if group <= 16 else f"{large}64"


def _step_row(row: Row, model: str, format: str) -> float:
    """Seconds of a step of a row."""
    group = _number(row, r"TP=(\d+)", "TP")
    batch, positions = _number(row, r"batch (\d+)", "batch"), _number(row, r"seq (\d+)", "seq")
    config = GPT_J_6B if model == "gpt-j-6b" else model_named(model)
    system = systems.get(_system_of(row, group))
    return streamed_step_seconds(config, group=group, positions=positions, batch=batch, format=format, system=system)


def _is_llama(row: Row) -> bool:
    return bool(_LLAMA.search(row["workload"])) and row["unit"] == "steps/s" and "no KV cache" in row["setting"]


_LLAMA = re.compile(r"^Llama-2 (7|13|70)B\b")


def _llama(row: Row) -> Figure:
    found = _LLAMA.search(row["workload"])
    assert found is not None
    seconds = _step_row(row, f"llama-2-{found[1]}b", "f16")
    return _figure(row, f"{row['workload']}: {row['setting'].rpartition('; ')[2]}", 1 / seconds)


def _is_gptj(row: Row) -> bool:
    return row["workload"].startswith("GPT-J 6B") and row["metric"].startswith("time per token") and row["unit"] == "ms"


def _gptj(row: Row) -> Figure:
    size = _number(row, r"group size (\d+)", "group size", 0)
    format = f"int4-{size}" if size else "f16"
    check_format(format)
    seconds = _step_row(row, "gpt-j-6b", format)
    return _figure(row, f"group size {size}", 1e3 * seconds / _number(row, r"batch (\d+)", "batch"))


# BERT on a card.


def _is_bert(row: Row) -> bool:
    return row["workload"] == "BERT-Base inference" and row["metric"] in ("throughput", "smallest batch out of memory")


def _encoder(row: Row, batch: int) -> EncoderRun:
    word = row["dtype"].split()[0]
    format = {"fp32": "f32", "fp16": "f16", "fp8": "f143"}.get(word)
    if format is None:
        raise FileFormatError(f"weights in {row['dtype']!r}", at=f"{row['workload']}: {row['setting']}")
    return EncoderRun(batch, _number(row, r"seq (\d+)", "seq"), format, "fused gelu" in row["dtype"])


def _bert(row: Row) -> Figure:
    system = systems.get("c600")
    kind = f"{row['dtype']}, {row['metric']}"
    if row["metric"] == "throughput":
        batch = _number(row, r"batch (\d+)", "batch")
        cost = encoder_cost(_encoder(row, batch), system)
        return _figure(row, f"{row['dtype']}, batch {batch}", batch / cost.seconds)
    fits = [batch for batch in _BATCHES if encoder_cost(_encoder(row, batch), system).lacking]
    return _figure(row, kind, float(fits[0]) if fits else float("inf"))


KINDS = (
    KnownRows(
        "llm_llama",
        "Llama-2, weights streamed, no cache",
        "Whole sequences are computed for every token. Loads and sums between IPUs take turns.",
        _is_llama,
        _llama,
    ),
    KnownRows(
        "llm_gptj",
        "GPT-J on four IPUs, weights streamed, no cache",
        "Whole sequences are computed for every token, by layers whose weights are loaded one after the other.",
        _is_gptj,
        _gptj,
    ),
    KnownRows(
        "llm_bert",
        "BERT-Base on a C600",
        "One run with its transfers from and to the host; two and three layers are compiled, which give twelve.",
        _is_bert,
        _bert,
    ),
)
"""Kinds of rows that are modelled, but for attention."""


def _remarks(rows: Iterable[Row], taken: int) -> list[str]:
    """Why rows are not modelled."""
    found = Counter(_reason(row) for row in rows)
    return [f"{taken} rows are modelled", *(f"{count} rows are not: {why}" for why, count in found.most_common())]


def _reason(row: Row) -> str:
    metric, unit, chip = row["metric"].lower(), row["unit"], row["chip"]
    if "packing" in row["workload"].lower() or "packed" in row["workload"].lower():
        return "packing, which abele validate --packing FILE compares"
    if not any(word in chip for word in ("IPU", "C600", "Bow", "any")):
        return f"they are of another chip ({chip.split('-')[0].split()[0] if chip else 'none'})"
    if any(word in metric for word in ("accuracy", "f1", "match", "loss", "bits per", "perplexity", "learning rate")):
        return "accuracies and losses, which are no cost of a machine"
    if "speed" in metric or unit in ("x", ""):
        return "ratios of runs that are not told in full"
    if "train" in metric or "steps" in metric or "samples" in metric:
        return "training runs, which abele validate --training compares"
    if "compile" in metric:
        return "compile times of another compiler"
    return f"no program is known for {row['workload'] or 'an unnamed workload'}: {row['metric']}"
