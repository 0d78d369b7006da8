"""Standard output: colour for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from abele import terminal
from abele.errors import AbeleError

if TYPE_CHECKING:
    from rich.console import Console


def print_json(data: Any) -> None:
    """Write ``data`` as one JSON document in ASCII, which no terminal obeys and every one shows."""
    json.dump(data, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_error(error: AbeleError) -> None:
    """Tell of an error on standard error, without traceback."""
    print(f"abele: {type(error).__name__}: {terminal.visible_text(str(error))}", file=sys.stderr)


def console(*, progress_only: bool = False) -> Console:
    """A console for people; with ``progress_only`` it writes to standard error, leaving standard output to data."""
    return terminal.console(stderr=progress_only)
