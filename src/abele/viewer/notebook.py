"""Reports in notebooks: the page as one file, in a frame without rights."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html import escape

from abele.viewer.serve import Viewer, view
from abele.viewer.static import Reports, static_html

NOTEBOOK_BYTES = 4_000_000
"""Size of a page in a notebook, which keeps what its cells show."""
_HEIGHT = 720


@dataclass(frozen=True)
class Page:
    """A page that a notebook shows, and that goes on working when the program has ended.

    Attributes:
        html: The page, as one file.
        height: Of the frame that it is shown in, in CSS pixels.
    """

    html: str = field(repr=False)
    height: int = _HEIGHT

    def _repr_html_(self) -> str:
        # Without allow-same-origin: scripts of the page see nothing of the notebook.
        return (
            f'<iframe title="Abele" sandbox="allow-scripts allow-downloads" width="100%" height="{self.height}" '
            f'style="border: 1px solid #8888" srcdoc="{escape(self.html)}"></iframe>'
        )


def show(reports: Reports, *, height: int = _HEIGHT, most_bytes: float = NOTEBOOK_BYTES) -> Page | Viewer:
    """Show reports where the program is: in the cell of a notebook, else in the browser.

    Args:
        reports: One report or several, or their files.
        height: Of the frame in a notebook, in CSS pixels.
        most_bytes: Size of the page in a notebook; what has no room is left out, and the foot of the page says so.

    Returns:
        In a notebook a page that needs no server; elsewhere the viewer, which goes on until it is closed or the
        program ends.

    Raises:
        FileFormatError: A file cannot be read, or is no report.
        InvalidOptionError: No reports, too many, or fewer bytes than a page needs.
        MissingPackageError: The packages of the extra ``view`` are not installed.
    """
    if in_notebook():
        return Page(static_html(reports, most_bytes), height)
    return view(reports)


def in_notebook() -> bool:
    """True if this program runs in the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None
