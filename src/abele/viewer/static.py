"""The page as one file: modules, styles and answers inside, so that it needs no server and no network.

Modules are the same files as a server sends. They lie in the page compressed, as the answers do; ``unfold.js`` inflates
them and leads their names to ``data:`` addresses by an import map. The content policy in the page's head allows exactly
these scripts and styles and no connection at all. It works where nothing is served: from a mail's attachment, from a
folder, and within a frame without rights in a notebook.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from abele import __version__
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.viewer import pages
from abele.viewer.frozen import Frozen, deflated, frozen
from abele.viewer.open_reports import Shelf
from abele.writing import writing_whole

MOST_BYTES = 8_000_000
"""Size of a page, when nobody says."""
_LEAST_ROOM = 100_000
"""Characters that a page should have for answers beside its modules."""

Reports = Sequence[str | Path | Report] | str | Path | Report


def static_page(reports: Reports, path: str | Path, most_bytes: float = MOST_BYTES) -> int:
    """Write a page that shows reports by itself, whole or not at all.

    Args:
        reports: One report or several, or their files.
        path: The file, by custom ``*.html``; folders above it are made.
        most_bytes: Largest size of the page. Details that have no room are left out, and its foot says so.

    Returns:
        Bytes of the page.

    Raises:
        FileFormatError: A report cannot be read, or the file cannot be written.
        InvalidOptionError: No reports, too many, or fewer bytes than a page needs.
    """
    html = static_html(reports, most_bytes).encode()
    with writing_whole(path) as part:
        part.write_bytes(html)
    return len(html)


def static_html(reports: Reports, most_bytes: float = MOST_BYTES) -> str:
    """The page that :func:`static_page` writes; the same arguments and errors."""
    if not math.isfinite(most_bytes):
        raise InvalidOptionError(f"a page of {most_bytes} B", remedy=f"a number, as {MOST_BYTES:,}")
    shelf = Shelf([reports] if isinstance(reports, str | Path | Report) else list(reports))
    title = ", ".join(opened.title for opened in shelf)
    listed = [opened.listed | {"changed": False} for opened in shelf]
    known: dict[str, Any] = {"reports": listed, "version": __version__}
    bare = len(_html(title, known, Frozen()).encode())
    # Room for the list of what is left out, which grows as the rest shrinks.
    room = int(most_bytes) - bare - 2_000
    if room < _LEAST_ROOM:
        raise InvalidOptionError(
            f"a page of {int(most_bytes):,} B has no room for a report",
            remedy=f"{bare + 2_000 + _LEAST_ROOM:,} B or more",
        )
    return _html(title, known, frozen(shelf, room))


def _html(title: str, known: dict[str, Any], found: Frozen) -> str:
    modules, imports = _modules()
    style, start = pages.style(), (pages.WEB / pages.UNFOLD).read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src {pages.hashed(start)} {pages.hashed(imports)} data:; "
        f"style-src {pages.hashed(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    index = json.dumps({**known, "left": found.left, "answers": found.places}).encode()
    inside = json.dumps([deflated(index), *found.bundles], separators=(",", ":"))
    return pages.filled(
        title=title,
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        styles=f"<style>{style}</style>",
        frozen=(
            f'<script type="application/json" id="abele-frozen">{inside}</script>\n'
            f'<script type="text/plain" id="abele-modules">{modules}</script>\n'
        ),
        start=f"<script>{start}</script>",
    )


@cache
def _modules() -> tuple[str, str]:
    """Modules of the page as it holds them, and the import map that ``unfold.js`` makes of them, to the letter."""
    modules = {f"abele/{name}": (pages.WEB / name).read_text("utf-8") for name in pages.module_names()}
    # As encodeURIComponent and JSON.stringify write them.
    imports = {name: f"data:{pages.TYPES['.js']},{quote(text, safe=_UNESCAPED)}" for name, text in modules.items()}
    return deflated(_json(modules).encode()), _json({"imports": imports})


_UNESCAPED = "-_.!~*'()"
"""Characters that encodeURIComponent leaves as they are, beside letters and digits."""


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
