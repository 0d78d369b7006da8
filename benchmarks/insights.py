"""Cost of insights and comparisons of a Pod64's report: 94,208 tiles, 50,000 steps, 100,000 variables.

Prints milliseconds, the best and the median of several runs, and the best of the processor, which other
work on the machine does not lengthen: of reports in memory, and of one that was just opened, so that the columns that
insights ask for are read from the file and checked.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import viewer_reports

from abele.report import Report
from abele.report.compare import compare

TIMES = 9


def changed(report: Report) -> Report:
    """The same program with every seventh operation a tenth slower."""
    ops = dict(report.ops.columns)
    cycles = report.ops["cycles"]
    ops["cycles"] = np.where(np.arange(len(cycles)) % 7 == 0, cycles + cycles // 10, cycles)
    return replace(report, ops=type(report.ops)(ops))


def measured(name: str, run: Callable[[], object]) -> None:
    """Print what ``run`` takes."""
    taken, worked = [], []
    for _ in range(TIMES):
        begin, began = time.perf_counter(), time.process_time()
        run()
        taken.append((time.perf_counter() - begin) * 1e3)
        worked.append((time.process_time() - began) * 1e3)
    print(f"{name:<44}{min(taken):>8.0f} ms  median {statistics.median(taken):>6.0f} ms  CPU {min(worked):>6.0f} ms")


def main() -> None:
    """Print all figures."""
    report = viewer_reports.pod64()
    reports = [report, changed(report)]
    measured("insights", lambda: reports[0].insights())
    measured("insights, as JSON", lambda: reports[0].insights().to_json())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pod"
        reports[0].save(path)
        measured("insights of a file, opening it included", lambda: Report.load(path).insights())
    measured("comparison of two", lambda: compare(reports))
    measured("comparison of two, as JSON", lambda: compare(reports).to_json())


if __name__ == "__main__":
    main()
