"""Run the samples of primitives and functions: ``python tests/primitives/check.py --types f32,i32 --page``."""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax

from primitives import page
from primitives.numpy_samples import FUNCTIONS
from primitives.running import run_sample
from primitives.samples import SAMPLES, TYPES

NATIVE = 8
"""One sample in so many is compiled too."""


def main() -> None:
    """Run what was asked for, say what does not pass, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="names, or beginnings of them; by default all")
    parser.add_argument("--types", default=",".join(TYPES), help="types, by commas")
    parser.add_argument("--native", type=int, default=NATIVE, help="compile one sample in so many")
    parser.add_argument("--page", action="store_true", help="keep the results beside earlier ones, and write the page")
    given = parser.parse_args()
    rows = {}
    for sample in (*SAMPLES, *FUNCTIONS):
        if given.names and not sample.name.startswith(tuple(given.names)):
            continue
        for dtype in given.types.split(","):
            if dtype not in sample.types:
                continue
            native = zlib.crc32(f"{sample.name} {sample.label} {dtype}".encode()) % given.native == 0
            row = run_sample(sample, dtype, native=native)
            rows[row.name, row.label, row.dtype] = row.as_json()
            if row.status != "pass":
                print(f"{row.status} {row.name} {row.label} {dtype}: {row.reason}", flush=True)
    if given.page:
        known = {(s.name, s.label, t) for s in (*SAMPLES, *FUNCTIONS) for t in s.types}
        if page.RESULTS.exists():
            before = {(r["name"], r["label"], r["dtype"]): r for r in page.read_results()["rows"]}
            rows = {k: v for k, v in (before | rows).items() if k in known}
        page.write_results(jax.__version__, given.native, rows.values())
        page.PAGE.write_text(page.page(page.read_results()))
    print(f"{sum(r['status'] == 'pass' for r in rows.values())} of {len(rows)} pass")


if __name__ == "__main__":
    main()
