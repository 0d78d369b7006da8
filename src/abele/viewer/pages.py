"""The files of the page: modules, styles, and the frame that loads them through an import map."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

WEB = Path(__file__).parent / "web"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
"""Media types of the files that are served, by ending."""


@cache
def module_names() -> tuple[str, ...]:
    """Paths of the modules of the page, from its folder on."""
    return tuple(sorted(path.relative_to(WEB).as_posix() for path in WEB.rglob("*.js")))


def style() -> str:
    """The styles of the page."""
    return "\n".join(path.read_text("utf-8") for path in sorted(WEB.rglob("*.css")))


def import_map() -> str:
    """The import map of the served page: ``abele/x.js`` is the file ``x.js``."""
    return json.dumps({"imports": {"abele/": "/web/"}})


def frame(title: str) -> str:
    """The HTML of the served page."""
    return _page(title, import_map(), '<link rel="stylesheet" href="/style.css">', "/web/start.js")


def _page(title: str, imports: str, styles: str, start: str) -> str:
    from html import escape

    return (
        (WEB / "frame.html")
        .read_text("utf-8")
        .replace("{{title}}", escape(title))
        .replace("{{imports}}", imports)
        .replace("{{styles}}", styles)
        .replace("{{start}}", start)
    )
