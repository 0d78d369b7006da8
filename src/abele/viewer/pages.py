"""The files of the page: modules, styles, and the frame that loads them through an import map."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from pathlib import Path

WEB = Path(__file__).parent / "web"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
"""Media types of the files that are served, by ending."""
UNFOLD = "unfold.js"
"""The script of the page as one file, which is no module."""
_PLACE = re.compile(r"\{\{(\w+)\}\}")


@cache
def module_names() -> tuple[str, ...]:
    """Paths of the modules of the page, from its folder on."""
    return tuple(sorted(path.relative_to(WEB).as_posix() for path in WEB.rglob("*.js") if path.name != UNFOLD))


@cache
def style() -> str:
    """The styles of the page."""
    return "\n".join(path.read_text("utf-8") for path in sorted(WEB.rglob("*.css")))


def import_map() -> str:
    """The import map of the served page: ``abele/x.js`` is the file ``x.js``."""
    return json.dumps({"imports": {"abele/": "/web/"}})


def frame(title: str) -> str:
    """The HTML of the served page."""
    return filled(
        title=title,
        imports=f'<script type="importmap">{import_map()}</script>',
        # Within: the first paint waits for nothing else.
        styles=f"<style>{style()}</style>",
        start='<script type="module" src="/web/start.js"></script>',
    )


def filled(*, title: str, styles: str, start: str, imports: str = "", policy: str = "", frozen: str = "") -> str:
    """The HTML of a page.

    Args:
        title: Its title, as text.
        styles: The element that brings the styles.
        start: The element that starts the page.
        imports: The element of the import map, where no script makes it.
        policy: The element that holds its content policy, where no header does.
        frozen: The element that holds what it knows, where no server does.
    """
    parts = {
        "title": escape(title),
        "imports": imports,
        "styles": styles,
        "start": start,
        "policy": policy,
        "frozen": frozen,
    }
    # All at once: what is put in may itself look like a place to fill.
    return _PLACE.sub(lambda found: parts[found[1]], (WEB / "frame.html").read_text("utf-8"))


def hashed(content: str) -> str:
    """Source expression of a content policy for an inline script or style of this content."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
