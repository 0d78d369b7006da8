"""Processor time of ``abele fit``: with nothing in the cache, and again.

    python benchmarks/fitting.py [model] [system] [more arguments of abele fit]

Two processes of ``abele fit MODEL --system SYSTEM --check 0 --json`` with a cache folder of their own. Both say the
same plans; the second compiles nothing.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile


def fitted(arguments: list[str], folder: str) -> tuple[float, list[tuple[int, float]]]:
    """Processor seconds of one process, and cycles and samples per second of its plans."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "abele", "fit", *arguments, "--check", "0", "--json"]
    made = subprocess.run(
        command, env={**os.environ, "ABELE_CACHE_DIR": folder}, stdout=subprocess.PIPE, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, [(plan["cycles"], plan["samples_per_second"]) for plan in json.loads(made.stdout)["ranking"]]


def main() -> None:
    model, system, *more = [*sys.argv[1:], *("bert-large", "pod16")[len(sys.argv[1:]) :]]
    with tempfile.TemporaryDirectory() as folder:
        cold, plans = fitted([model, "--system", system, *more], folder)
        warm, again = fitted([model, "--system", system, *more], folder)
    assert again == plans
    print(f"{model} on {system}: {len(plans)} plans; processor seconds: cold {cold:.1f}, warm {warm:.1f}")


if __name__ == "__main__":
    main()
