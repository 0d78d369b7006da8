"""The arrays of an executable, by the names under which its document refers to them."""

from __future__ import annotations

import numpy.typing as npt

from abele.compiler.store.format import ExecutableDocument
from abele.report import archive as container
from abele.report.archive import Kind

KIND = Kind(
    noun="executable",
    version=4,
    max_bytes=64 << 30,
    free_bytes=1 << 30,
    ratio=100,
    again="compile the program again and save it with Executable.save",
    schema=ExecutableDocument,
)
"""Version 2: infinite constants as text, source files as portable paths. Version 3: host bodies of steps. Version 4:
bytes of vertices' records where codelets give them.
"""


class Writer:
    """Collects arrays while the document is put together."""

    def __init__(self, archive: container.ArchiveWriter) -> None:
        self._archive = archive
        self._num = 0

    def array(self, values: npt.ArrayLike) -> str:
        """Keep an array; gives the name by which the document refers to it."""
        name, self._num = f"a{self._num}.npy", self._num + 1
        container.write_array(self._archive, name, values)
        return name
