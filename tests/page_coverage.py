"""Functions of the page's modules that the browser tests run.

Set ABELE_PAGE_COVERAGE to a folder while the tests run; then ``python tests/page_coverage.py FOLDER`` prints a line
for each module, and the functions that never ran with ``--missing``.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

FOLDER = os.environ.get("ABELE_PAGE_COVERAGE", "")


def watch(page: Page) -> CDPSession | None:
    """Count calls in a page from now on, if somebody wants to know."""
    if not FOLDER:
        return None
    session = page.context.new_cdp_session(page)
    session.send("Profiler.enable")
    session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": False})
    return session


def keep(session: CDPSession | None) -> None:
    """Write what ran in the page."""
    if session is None:
        return
    seen: dict[str, dict[str, int]] = {}
    for script in session.send("Profiler.takePreciseCoverage")["result"]:
        _, found, module = script["url"].partition("/web/")
        if found:
            seen[module] = {_place(f): f["ranges"][0]["count"] for f in script["functions"]}
    Path(FOLDER).mkdir(parents=True, exist_ok=True)
    (Path(FOLDER) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(seen))


def _place(function: dict[str, Any]) -> str:
    return f"{function['functionName'] or 'anonymous'}@{function['ranges'][0]['startOffset']}"


def merged(folder: Path) -> dict[str, dict[str, int]]:
    """Calls of each function of each module over all pages."""
    total: dict[str, dict[str, int]] = {}
    for file in folder.glob("*.json"):
        for module, functions in json.loads(file.read_text()).items():
            held = total.setdefault(module, {})
            for name, count in functions.items():
                held[name] = held.get(name, 0) + count
    return total


def main() -> None:
    """Print the table."""
    folder, missing = Path(sys.argv[1]), "--missing" in sys.argv
    every = ran = 0
    for module, functions in sorted(merged(folder).items()):
        called = sum(count > 0 for count in functions.values())
        every, ran = every + len(functions), ran + called
        print(f"{called / len(functions):>6.0%}  {called:>4} of {len(functions):<4} {module}")
        if missing:
            print("".join(f"{'':>22}{name}\n" for name, count in functions.items() if not count), end="")
    print(f"{ran / max(every, 1):>6.0%}  {ran:>4} of {every:<4} all modules that were loaded")


if __name__ == "__main__":
    main()
