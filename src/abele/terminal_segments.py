"""Treatment of all text that a console of ours is about to show."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.measure import Measurement
from rich.segment import Segment

from abele.terminal import visible_text


class VisibleSegments(RenderHook):
    """Makes the text of all renderables visible; control codes are rich's own alone."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """The renderables, wrapped."""
        return [r if isinstance(r, Control) else _Visible(r) for r in renderables]


class _Visible:
    """A renderable without segments that a terminal would obey."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(visible_text(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._inner)
