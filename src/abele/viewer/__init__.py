"""The analyser: reports in the browser."""

from __future__ import annotations

from abele.viewer.serve import Viewer, view

__all__ = ["Viewer", "view"]
