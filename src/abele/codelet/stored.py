"""Codelets that come from a file: read already, without source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abele.codelet.tree import Helper


@dataclass(frozen=True, eq=False)
class StoredCode:
    """A codelet as a file holds it.

    Attributes:
        tree: Its ``compute``, read.
        text: The same as text, from which its native code is made.
        trusted: True if native code may run without checking every access.
    """

    tree: Helper
    text: str
    trusted: bool

    @property
    def key(self) -> str:
        """A digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()
