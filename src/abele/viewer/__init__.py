"""The analyser: reports in the browser."""

from __future__ import annotations

from abele.viewer.notebook import Page, show
from abele.viewer.serve import Viewer, view
from abele.viewer.static import static_html, static_page

__all__ = ["Page", "Viewer", "show", "static_html", "static_page", "view"]
