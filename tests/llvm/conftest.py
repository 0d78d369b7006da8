"""Makes the helpers beside the tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

from support.emulator import emulated

sys.path.insert(0, str(Path(__file__).parent))

__all__ = ["emulated"]
