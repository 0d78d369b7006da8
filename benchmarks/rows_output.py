"""Rows of a benchmark as its output: one JSON object, or the benchmark's own table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def print_rows(rows: list[Any], show: Callable[[list[Any]], None], *, as_json: bool) -> None:
    """Print ``rows`` as one JSON object, or by ``show``."""
    if as_json:
        print(json.dumps({"rows": rows}))
    else:
        show(rows)
