"""The heap of processes that compile."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FAULTS = """
import resource
import numpy as np
from abele.fitting.heap import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(5 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
assert keep_freed_memory()
faults()
print(faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone has mallopt")
def test_keep_freed_memory__large_arrays_again_and_again__are_not_asked_of_the_system() -> None:
    made = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, made.stdout.split())
    # 5 arrays of 42 MB are 10,240 pages each, or 20 huge ones.
    assert after < 5 <= before
