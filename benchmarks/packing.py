"""Packing of real length statistics, beside what is published and beside the packers of other packages.

    python benchmarks/packing.py [--json] [--quick] [--data ../shared/data/length_histograms.csv]
                                 [--rivals PYTHON] [--items 1000000] [--only PART]

Parts: ``solve`` packs histograms with a depth limit, beside the packs and bounds measured elsewhere by column
generation; ``nnlshp`` the published method for comparison; ``assign`` gives all 16.3 million lengths of Wikipedia to
packs; ``items`` packs raw lists of lengths beside rivals; ``stream`` packs them window by window.

Rivals are imported where they are installed: by this Python, or by another one that --rivals names, so that they need
not share an environment: lightbinpack, TRL, axolotl and torchtune. What is not installed, or cannot be imported there,
is listed with the reason. All get the same shuffled lengths, and their packs are checked: each item once, none over the
capacity. TRL and torchtune pack data sets of tokens rather than lengths, and their time includes that of moving tokens;
they are given the number of an item as each of its tokens, by which its pack is known, as long as there are no more
than 50 million. Times are processor time of the process, all of its threads, the best of --rounds (once where a round
takes seconds).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from abele.packing import PackStream, SizeHistogram, pack, pack_in_order, pack_items, read_lengths

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "length_histograms.csv"

SOLVED = [
    # histogram, capacity, depth, packs and bound measured by a script of column generation, limit in seconds
    ("squad11_384", 384, 3, 40_196, 40_195, 1.0),
    ("squad11_384", 384, 2, 45_335, 45_335, None),
    ("wikipedia_512", 512, 3, 8_143_864, 8_143_829, 3.0),
    ("wikipedia_512", 512, 4, 8_135_752, 8_135_727, None),
    ("wikipedia_512", 512, None, 8_135_728, 8_135_727, None),
    ("glue_cola_128", 128, None, 757, 757, None),
    ("glue_wnli_128", 128, None, 185, 184, None),
    ("glue_rte_128", 128, None, 1_308, 1_308, None),
    ("glue_mrpc_128", 128, None, 1_542, 1_541, None),
    ("glue_stsb_128", 128, None, 1_250, 1_250, None),
]

RIVALS = """
import importlib.util, json, sys, time
import numpy as np
lengths, capacity, rounds = np.load(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
plain = lengths.tolist()
found = {}
def timed(name, run, items, rounds):
    best, packs = None, None
    for _ in range(rounds):
        begin = time.process_time(); packs = run(); took = time.process_time() - begin
        best = took if best is None else min(best, took)
    packs = items(packs)
    seen = sorted(item for pack in packs for item in pack)
    right = seen == list(range(len(plain))) and all(sum(plain[i] for i in pack) <= capacity for pack in packs)
    found[name] = {"packs": len(packs), "seconds": best, "right": right}
def tried(name, package, make, items=list, rounds=rounds):
    if importlib.util.find_spec(package) is None:
        found[name] = {"skipped": "not installed"}
        return
    try:
        timed(name, make(), items, rounds)
    except Exception as error:
        found[name] = {"skipped": " ".join(f"{type(error).__name__}: {error}".split())[:120]}
def numbered():
    if lengths.sum() > 50_000_000:
        raise ValueError(f"{lengths.sum():,} tokens, 50,000,000 are tried")
    return np.repeat(np.arange(len(lengths), dtype=np.int32), lengths), np.append(0, np.cumsum(lengths))
def begins(counts):
    return np.cumsum(counts) - counts
def lightbinpack():
    from lightbinpack import obfd
    return lambda: obfd(plain, capacity)
def trl():
    import pyarrow as pa
    from datasets import Dataset, disable_progress_bars
    from trl.data_utils import pack_dataset
    disable_progress_bars()
    tokens, offsets = numbered()
    whole = Dataset(pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(tokens))}))
    how = {"batch_size": len(plain), "keep_in_memory": True}
    return lambda: pack_dataset(whole, capacity, "bfd", map_kwargs=how)
def items_of_trl(packed):
    packed = packed.with_format("numpy")
    return [np.asarray(row["input_ids"])[begins(np.asarray(row["seq_lengths"]))].tolist() for row in packed]
def axolotl():
    from axolotl.utils.samplers.multipack import pack_parallel
    run = lambda sizes: pack_parallel(sizes, capacity, group_size=100_000, bin_size=len(plain), num_processes=1)
    run(lengths[:10].astype(np.int32))  # Compiling is not packing.
    return lambda: run(lengths.astype(np.int32))
def torchtune():
    from torchtune.datasets import PackedDataset
    tokens, offsets = numbered()
    rows = [tokens[a:b].tolist() for a, b in zip(offsets, offsets[1:])]
    return lambda: PackedDataset([{"tokens": row, "labels": row} for row in rows], max_seq_len=capacity)
def items_of_torchtune(packed):
    # What is left of a row is padded with a sequence of its own.
    found = []
    for pack in packed.packs:
        counts, used = np.asarray(pack["seq_lens"]), int((np.asarray(pack["labels"]) != -100).sum())
        at = begins(counts)
        found.append(np.asarray(pack["tokens"])[at[at < used]].tolist())
    return found
tried("lightbinpack obfd", "lightbinpack", lightbinpack)
tried("TRL pack_dataset, bfd, with tokens", "trl", trl, items_of_trl, 1)
tried("axolotl pack_parallel, groups of 100,000", "axolotl", axolotl, list, 1)
tried("torchtune PackedDataset, in order, with tokens", "torchtune", torchtune, items_of_torchtune, 1)
print(json.dumps(found))
"""
"""Program for the Python of the rivals: only their published functions, timed, and their packs checked."""


def timed(run: Callable[[], Any], rounds: int) -> tuple[Any, float]:
    """Result of ``run``, and the least processor time of some rounds in seconds."""
    best, found = float("inf"), None
    for _ in range(rounds):
        begin = time.process_time()
        found = run()
        best = min(best, time.process_time() - begin)
    return found, best


def shuffled(histogram: SizeHistogram, most: int | None) -> np.ndarray:
    lengths = np.repeat(histogram.lengths, histogram.counts)
    np.random.default_rng(0).shuffle(lengths)
    return lengths[:most]


def solve(data: Path, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, capacity, depth, known, bound, limit in SOLVED:
        histogram = read_lengths(data, column=name)
        plan, seconds = timed(lambda h=histogram, c=capacity, d=depth: pack(h, c, depth=d), rounds)
        _, fit_seconds = timed(lambda h=histogram, c=capacity, d=depth: pack(h, c, depth=d, method="lpfhp"), rounds)
        rows.append(
            {
                "part": "solve",
                "set": name,
                "depth": depth,
                "packs": plan.num_packs,
                "bound": plan.bound,
                "known_packs": known,
                "known_bound": bound,
                "seconds": seconds,
                "limit_seconds": limit,
                "lpfhp_seconds": fit_seconds,
                "reached": plan.num_packs <= known and (limit is None or seconds <= limit),
            }
        )
    return rows


def nnlshp(data: Path) -> list[dict[str, Any]]:
    rows = []
    for name, capacity, published in (("squad11_384", 384, 40_808), ("wikipedia_512", 512, 8_155_059)):
        histogram = read_lengths(data, column=name)
        plan, seconds = timed(lambda h=histogram, c=capacity: pack(h, c, depth=3, method="nnlshp"), 1)
        rows.append(
            {"part": "nnlshp", "set": name, "packs": plan.num_packs, "known_packs": published, "seconds": seconds}
        )
    return rows


def assign(data: Path, rounds: int) -> list[dict[str, Any]]:
    lengths = shuffled(read_lengths(data, column="wikipedia_512"), None)
    plan = pack(lengths, 512, depth=3)
    rows = []
    for seed in (None, 1):
        packs, seconds = timed(lambda s=seed: plan.assign(lengths, seed=s), rounds)
        right = len(packs) == plan.num_packs and int(np.bincount(packs.items).max()) == 1
        rows.append(
            {
                "part": "assign",
                "set": f"wikipedia_512, {len(lengths):,} lengths" + ("" if seed is None else ", shuffled"),
                "packs": len(packs),
                "seconds": seconds,
                "limit_seconds": 3.0,
                "reached": right and seconds <= 3.0,
            }
        )
    return rows


def items(data: Path, most: int, rounds: int, python: str) -> list[dict[str, Any]]:
    rows = []
    for name, capacity in (("squad11_384", 384), ("wikipedia_512", 512)):
        lengths = shuffled(read_lengths(data, column=name), most)
        ours: dict[str, Callable[[], Any]] = {
            "abele best fit": lambda s=lengths, c=capacity: pack_items(s, c),
            "abele columns": lambda s=lengths, c=capacity: pack_items(s, c, method="columns"),
            "abele next fit, order kept": lambda s=lengths, c=capacity: pack_in_order(s, c),
        }
        label = f"{name}, {len(lengths):,} lengths"
        for packer, run in ours.items():
            packs, seconds = timed(run, rounds)
            rows.append({"part": "items", "set": label, "packer": packer, "packs": len(packs), "seconds": seconds})
        for packer, found in rivals(lengths, capacity, rounds, python).items():
            rows.append({"part": "items", "set": label, "packer": packer, **found})
    return rows


def rivals(lengths: np.ndarray, capacity: int, rounds: int, python: str) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lengths.npy"
        np.save(path, lengths)
        command = [python, "-c", RIVALS, str(path), str(capacity), str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return {"rivals": {"skipped": f"{python}: {reason[0]}"}}
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def stream(data: Path, most: int) -> list[dict[str, Any]]:
    lengths = shuffled(read_lengths(data, column="wikipedia_512"), most)
    rows = []
    for depth in (None, 3):
        offline = pack(lengths, 512, depth=depth)

        def run(depth: int | None = depth) -> int:
            packer = PackStream(512, depth=depth, window=100_000)
            made = sum(len(packer.push(lengths[begin : begin + 4_096])) for begin in range(0, len(lengths), 4_096))
            return made + len(packer.finish())

        packs, seconds = timed(run, 1)
        rows.append(
            {
                "part": "stream",
                "set": f"wikipedia_512, {len(lengths):,} lengths, window 100,000",
                "depth": depth,
                "packs": packs,
                "bound": offline.bound,
                "known_packs": offline.num_packs,
                "seconds": seconds,
                "reached": packs <= 1.01 * offline.num_packs,
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    out = Console()
    if out.width < 140:
        out = Console(width=140)
    for part in dict.fromkeys(row["part"] for row in rows):
        table = Table(title=part, title_justify="left", box=None, padding=(0, 2, 0, 0))
        of_part = [row for row in rows if row["part"] == part]
        names = [name for name in dict.fromkeys(name for row in of_part for name in row) if name != "part"]
        for name in names:
            table.add_column(
                name.replace("_", " "), justify="left" if name in ("set", "packer", "skipped") else "right"
            )
        for row in of_part:
            table.add_row(*(_text(row.get(name, "")) for name in names))
        out.print(table)
        out.print()


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one round, 100,000 items, without nnlshp")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rivals", default=sys.executable, help="a Python that has the rivals' packages")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("solve", "nnlshp", "assign", "items", "stream"))
    given = parser.parse_args()
    rounds, most = (1, min(given.items, 100_000)) if given.quick else (given.rounds, given.items)
    pack([1, 2, 3, 3], 4)  # Importing SciPy is not packing.
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "solve": lambda: solve(given.data, rounds),
        "nnlshp": lambda: nnlshp(given.data),
        "assign": lambda: assign(given.data, rounds),
        "items": lambda: items(given.data, most, rounds, given.rivals),
        "stream": lambda: stream(given.data, most),
    }
    chosen = [given.only] if given.only else [name for name in parts if name != "nnlshp" or not given.quick]
    rows = [row for name in chosen for row in parts[name]()]
    if given.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
