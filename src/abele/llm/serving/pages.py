"""The files of the page: its own modules, and those of the viewer that it shares."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from abele.viewer import pages as viewer_pages
from abele.viewer.guard import policy

WEB = Path(__file__).parent / "web"
_SHARED = ("core/chart.js", "core/dom.js", "core/format.js", "core/svg.js", "core/theme.js", "core/tip.js")
"""Modules of the viewer that the page uses."""


def module_text(folder: str, name: str) -> str | None:
    """The text of a module: of the viewer's under ``web``, of the page's under ``chat``; None where there is none."""
    if folder == "web":
        return (viewer_pages.WEB / name).read_text("utf-8") if name in _SHARED else None
    return (WEB / name).read_text("utf-8") if name in _own_names() else None


@cache
def _own_names() -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(WEB).as_posix() for path in WEB.rglob("*.js")))


def import_map() -> str:
    """The import map: ``abele/x.js`` is the viewer's file, ``chat/x.js`` the page's own."""
    return json.dumps({"imports": {"abele/": "/web/", "chat/": "/chat/"}})


@cache
def style() -> str:
    """The viewer's colours and elements, then the page's own."""
    viewer = (viewer_pages.WEB / "style.css").read_text("utf-8")
    return viewer + "\n" + (WEB / "chat.css").read_text("utf-8")


@cache
def page() -> str:
    """The HTML of the page."""
    frame = (WEB / "frame.html").read_text("utf-8")
    before, rest = frame.split("{{style}}")
    between, after = rest.split("{{imports}}")
    return before + style() + between + import_map() + after


def content_policy() -> str:
    """The content policy of the page."""
    return policy(import_map(), style())
