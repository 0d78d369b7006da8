"""Draw the pictures of the documentation from a real report: python docs/make_pictures.py REPORT."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from abele.report import Report
from abele.report.render import render

PICTURES = Path(__file__).parent / "pictures"
WIDTH = 110


def draw(report: Report, target: Path, title: str) -> None:
    """Write what ``abele report`` prints as an SVG file that needs nothing from elsewhere (rich would fetch a font)."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(width=WIDTH, record=True, file=nowhere, highlight=False, force_terminal=True)
        console.print(render(report))
    svg = re.sub(r"@font-face \{.*?\}\n?", "", console.export_svg(title=title, theme=MONOKAI), flags=re.DOTALL)
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


def main() -> None:
    """Read the report that the command line names and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="a report file, from abele demo digits --report FILE")
    arguments = parser.parse_args()
    report = Report.load(arguments.report)
    draw(report, PICTURES / "report.svg", "abele demo digits")
    report.plot().savefig(PICTURES / "report-plot.png", dpi=110)


if __name__ == "__main__":
    main()
