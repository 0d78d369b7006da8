"""Makes ``spread_models`` importable by the room's tests, and has networks checked between passes."""

from __future__ import annotations

import sys
from pathlib import Path

from abele.parallel import check_passes

sys.path.insert(0, str(Path(__file__).resolve().parent))
check_passes()
