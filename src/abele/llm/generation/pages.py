"""Pages of the cache: who holds them, and which can be used again.

A pool of 9 pages with 16 positions each lends pages 1 to 8; page 0 is scratch. A page that a prompt fills is published
under a digest of all tokens up to its end. A later prompt that begins with the same 48 tokens takes the three pages as
they are. Pages that nobody holds stay published until their room is needed; the one unused for longest goes first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

Digest = bytes


def digests(tokens: Sequence[int], page: int) -> list[Digest]:
    """Digest of each full page of these tokens, each over everything before it too.

    A cryptographic hash: a stranger cannot make a prompt that reads the pages of another one.
    """
    found, whole = [], hashlib.blake2b(digest_size=16)
    for first in range(0, len(tokens) - page + 1, page):
        whole.update(np.asarray(tokens[first : first + page], dtype=np.int64).tobytes())
        found.append(whole.digest())
    return found


class PagePool:
    """Pages of fixed size, counted by their holders.

    Args:
        pages: Pages, the scratch page included.
    """

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages - 1, 0, -1))
        self._holders: dict[int, int] = {}
        self._published: dict[Digest, int] = {}
        self._digest_of: dict[int, Digest] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()

    @property
    def num_available(self) -> int:
        """Pages that can be taken: free ones, and published ones that nobody holds."""
        return len(self._free) + len(self._unused)

    @property
    def num_held(self) -> int:
        """Pages with a holder."""
        return len(self._holders)

    def holders(self, page: int) -> int:
        """Sequences that hold this page."""
        return self._holders.get(page, 0)

    def take(self) -> int | None:
        """A page for one holder alone; None when every page is held."""
        if self._free:
            page = self._free.pop()
        elif self._unused:
            page, _ = self._unused.popitem(last=False)
            del self._published[self._digest_of.pop(page)]
        else:
            return None
        self._holders[page] = 1
        return page

    def find(self, digest: Digest) -> int | None:
        """The page published under this digest."""
        return self._published.get(digest)

    def is_unused(self, page: int) -> bool:
        """True for a published page that nobody holds."""
        return page in self._unused

    def share(self, page: int) -> None:
        """One more holder of a page that is held or published."""
        self._unused.pop(page, None)
        self._holders[page] = self._holders.get(page, 0) + 1

    def publish(self, page: int, digest: Digest) -> None:
        """Offer of a full page to others; the first of equal ones stays."""
        if digest not in self._published and page not in self._digest_of:
            self._published[digest] = page
            self._digest_of[page] = digest

    def release(self, pages: Sequence[int]) -> None:
        """The end of one holding of each page; the last of a sequence is given away first."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            del self._holders[page]
            if page in self._digest_of:
                self._unused[page] = None
            else:
                self._free.append(page)
