"""Prints of vertices: gathered while a compute set runs, shown after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abele.codelet.printing import Lines, printing_to
from abele.runtime.control.callbacks import Callbacks
from abele.runtime.control.emitter import Emitter
from abele.runtime.supersteps.placed_groups import PlacedGroup


@dataclass(frozen=True, eq=False)
class VertexPrints:
    """Shows the prints of vertices, group after group, each in the order of its vertices.

    Attributes:
        callbacks: Callbacks that calls are added to.
        print_text: Writes a line for the user.
    """

    callbacks: Callbacks
    print_text: Callable[[str], None]

    def emit(self, groups: Sequence[PlacedGroup], emitter: Emitter) -> None:
        """Append the code that shows prints of the last vertices, if their codelets print."""
        if any(placed.tables.sink is not None for placed in groups):
            emitter.callback(self.callbacks.add(lambda: self.show(groups)))

    def show(self, groups: Sequence[PlacedGroup]) -> None:
        """Show the prints of these groups' native code."""
        lines = Lines(self.print_text)
        for placed in groups:
            if placed.tables.sink is not None:
                lines.write(placed.tables.sink.take())
        lines.close()

    def around(self, groups: list[PlacedGroup], run: Callable[[list[PlacedGroup]], None]) -> None:
        """Run vertices from Python: plain Python prints at once, native code after all."""
        try:
            with printing_to(self.print_text):
                run(groups)
        finally:
            self.show(groups)
