"""Write the tables of options into their pages, from the code that reads them: python docs/make_options.py."""

from __future__ import annotations

import re
from pathlib import Path

from abele.frontends.poptorch.options import Options, TensorLocationSettings
from abele.options import OptionTable
from abele.runtime.engine.options import OPTIONS
from abele.session.settings import SETTINGS

TABLES: dict[str, dict[str, OptionTable]] = {
    "engine.md": {"engine": OPTIONS},
    "session.md": {"settings": SETTINGS},
    "poptorch.md": {
        "options": Options.table,
        **{f"options-{n.lower()}": g.table for n, g in Options.groups.items()},
        "location-settings": TensorLocationSettings.table,
    },
}
"""For each page, its tables by the marker that stands before them."""


def page(name: str, text: str) -> str:
    """The text of a page with its tables as the code has them; a table ends at the first empty line."""
    for marker, table in TABLES[name].items():
        head = f"<!-- options: {marker} -->\n"
        text, found = re.subn(re.escape(head) + r"(\|.*\n)*", lambda _, h=head, t=table: h + t.markdown() + "\n", text)
        assert found == 1, f"{name} has no marker {head!r}"
    return text


def main() -> None:
    """Write all pages anew."""
    for name in TABLES:
        path = Path(__file__).parent / name
        path.write_text(page(name, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
