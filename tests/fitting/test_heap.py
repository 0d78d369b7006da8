"""The heap of processes that compile."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FAULTS = """
import resource
import numpy as np
from abele.fitting.heap import keep_freed_memory
{}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(5 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone has mallopt")
def test_keep_freed_memory__large_arrays_again_and_again__are_not_asked_of_the_system() -> None:
    def faults(first: str) -> int:
        made = subprocess.run([sys.executable, "-c", _FAULTS.format(first)], capture_output=True, text=True, check=True)
        return int(made.stdout)

    # 5 arrays of 42 MB are 10,240 pages each, or 20 huge ones.
    assert faults("assert keep_freed_memory()") < 5
    assert faults("") >= 5
