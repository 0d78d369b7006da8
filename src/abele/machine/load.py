"""Reading a system description from a file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from abele.errors import MachineError


def read_overrides(path: Path) -> dict[str, Any]:
    """The table that a TOML or JSON file holds.

    Raises:
        MachineError: The file is missing, not text, or not well formed; the error names the line where there is one.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise MachineError(
            f"{path}: {error.strerror or error}", remedy="give the path of a TOML or JSON file"
        ) from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise MachineError(f"{path}: not a well-formed system description", because=str(error)) from error
    if not isinstance(table, dict):
        raise MachineError(f"{path}: a system description is a table of fields, not a {type(table).__name__}")
    return table
