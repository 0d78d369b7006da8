"""Makes the helpers beside the tests importable."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from abele.llvm.cpus import cpu_named
from abele.llvm.host import code_for

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    """With ``EMULATE=neoverse-n1`` what goes through the test kit is made for that CPU, and runs in an emulator."""
    cpu = cpu_named(os.environ.get("EMULATE", ""))
    if cpu is None:
        yield
        return
    with code_for(cpu):
        yield
