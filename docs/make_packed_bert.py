"""Draw the picture of packed BERT: python docs/make_packed_bert.py RUN.json …, each from benchmarks/packed_bert.py."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("agg")

from matplotlib import pyplot

PICTURES = Path(__file__).parent / "pictures"
COLOURS = {"padded": "tab:red", "packed": "tab:blue"}


def draw(results: list[dict[str, Any]], target: Path) -> None:
    """Losses of each benchmark over sequences, and over time, with a line for each seed."""
    figure, rows = pyplot.subplots(
        len(results), 2, figsize=(9, 3.2 * len(results)), layout="constrained", squeeze=False
    )
    for axes, result in zip(rows, results, strict=True):
        for run in result["runs"]:
            for name, colour in COLOURS.items():
                found = run[name]
                share = (np.arange(len(found["curve"])) + 0.5) / len(found["curve"])
                label = name if run is result["runs"][0] else None
                style = {"color": colour, "linewidth": 1.2, "alpha": 0.8, "label": label}
                axes[0].plot(share * found["sequences"], found["curve"], **style)
                seconds = found["cpu_seconds_per_sequence"] * found["sequences"]
                axes[1].plot(share * seconds, found["curve"], **style)
        sizes = result["settings"]
        title = f"{sizes['layers']} layers, hidden {sizes['width']}, rows of {sizes['tokens']} tokens"
        axes[0].set(title=title, xlabel="sequences seen", ylabel="loss by sequence, nats")
        axes[1].set(title="the same over time", xlabel="seconds of one core", ylabel="")
        for axis in axes:
            axis.grid(visible=True, linewidth=0.3)
            axis.legend(frameon=False)
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})


def main() -> None:
    """Read the files that the command line names and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="from benchmarks/packed_bert.py --json; equal settings join")
    arguments = parser.parse_args()
    joined: dict[str, dict[str, Any]] = {}
    for path in arguments.runs:
        result = json.loads(path.read_text(encoding="utf-8"))
        known = joined.setdefault(json.dumps(result["settings"]), result)
        if known is not result:
            known["runs"] += result["runs"]
    draw(list(joined.values()), PICTURES / "packed-bert.png")


if __name__ == "__main__":
    main()
