"""Published training runs beside predictions: every run compiled as it was configured.

    python benchmarks/training_runs.py [--json] [--only PART_OF_NAME] [--system NAME] [--jobs N]

A run is compiled in a process of its own, which takes a core for a minute or more and up to some gigabytes. With --json
one object is printed: {"rows": [...]}, with ``name``, ``system``, ``predicted_s``, ``published_s``, ``error``, what the
busiest IPU spends an update on (``parts_s``), the fullest tile, and ``held`` for the runs that are to be within 15 %.
"""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console

from abele.cli.validate import show
from abele.validation.training.comparing import comparisons, details_table, predict_all
from abele.validation.training.runs import RUNS


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    parser.add_argument("--system", help="runs on this system")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    given = parser.parse_args()
    runs = [r for r in RUNS if given.only in r.name and given.system in (None, r.system)]
    predicted = predict_all(runs, jobs=given.jobs, console=Console(file=sys.stderr))
    if given.json:
        print(json.dumps({"rows": predicted.rows, "failures": list(predicted.failures)}))
        return
    console = Console(width=200)
    show(comparisons(predicted), predicted.failures, console)
    console.print(details_table(predicted.predictions))


if __name__ == "__main__":
    main()
