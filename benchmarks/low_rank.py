"""Host time of tile low-rank products beside NumPy's product with the dense matrix.

    python benchmarks/low_rank.py [--json] [--rounds 20] [--rows 2400] [--columns 9600]

The matrix is a Cauchy kernel of points on a disc, along a Morton curve, in tiles of 128. Times are of the wall, the
best of alternating rounds of one call each, in f32; NumPy takes as many threads as Abele. ``bytes`` are those of the
factors over those of the dense matrix: what a product reads bounds both. ``ratio`` is NumPy's time over ours, above 1
where Abele is faster. With --json one object is printed: {"rows": [...]}.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from abele import lowrank


def points(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Points on a disc, along a Morton curve."""
    rng = np.random.default_rng(seed)
    radius, angle = np.sqrt(rng.random(count)), 2 * np.pi * rng.random(count)
    found = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return found[lowrank.morton_order(found)]


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measured(rows: int, columns: int, tolerance: float, batch: int | None, rounds: int) -> dict[str, Any]:
    """One row."""
    one, other = points(rows, 0), points(columns, 1)
    dense = 1 / (1 + 16 * ((one[:, None] - other) ** 2).sum(-1))
    matrix = lowrank.compress(dense, 128, tolerance=tolerance, method="randomised")
    narrow = dense.astype(np.float32)
    x = np.random.default_rng(0).standard_normal(columns if batch is None else (batch, columns)).astype(np.float32)
    with lowrank.LowRankProduct(matrix, batch=batch) as product:
        error = np.linalg.norm(product(x) - x @ dense.T) / np.linalg.norm(x @ dense.T)
        times = [(seconds(lambda: product(x)), seconds(lambda: x @ narrow.T)) for _ in range(rounds)]
    ours, numpys = (min(t[k] for t in times) for k in (0, 1))
    return {
        "matrix": f"{rows} x {columns}",
        "vectors": batch or 1,
        "tolerance": tolerance,
        "error": float(error),
        "bytes": matrix.compression,
        "abele_us": ours * 1e6,
        "numpy_us": numpys * 1e6,
        "ratio": numpys / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=2400)
    parser.add_argument("--columns", type=int, default=9600)
    given = parser.parse_args()
    cases = [(1e-2, None), (1e-4, None), (1e-4, 8)]
    rows = [measured(given.rows, given.columns, tolerance, batch, given.rounds) for tolerance, batch in cases]
    if given.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print(
            f"{row['matrix']:>14} x {row['vectors']} vectors, tolerance {row['tolerance']:g}: "
            f"error {row['error']:.1e}, bytes {row['bytes']:.3f}, "
            f"Abele {row['abele_us']:,.0f} us, NumPy {row['numpy_us']:,.0f} us, ratio {row['ratio']:.2f}"
        )


if __name__ == "__main__":
    main()
