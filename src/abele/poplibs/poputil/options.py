"""Options of library functions: each has a table of them, by PopLibs' names; how they are read is :mod:`abele.options`.

Users give a mapping, with PopLibs' names (``availableMemoryProportion``) or ours (``available_memory_proportion``), and
values as such or as text (``"0.6"``, ``"true"``, ``"half"``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abele.options import Option, choice, element_type, flag, integer, number, read_options, text

__all__ = [
    "PROPORTION",
    "Option",
    "Options",
    "choice",
    "element_type",
    "flag",
    "integer",
    "number",
    "read_options",
    "text",
]

Options = Mapping[str, Any] | None
"""Options as users give them: values by the names of options, or none."""

PROPORTION = number(0.6, 0.0, 1.0)
"""``availableMemoryProportion``. Source of the default: machine.md §5.6."""
