"""The installed Lightning: ``lightning.pytorch``, or ``pytorch_lightning`` where a program imported that one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from abele.errors import MissingPackageError

_PACKAGES = ("lightning", "pytorch_lightning")


def _package() -> str:
    """The package whose ``Trainer`` a program uses: the two have classes of their own, which do not mix."""
    present = [name for name in _PACKAGES if name in sys.modules]
    found = present or [name for name in _PACKAGES if importlib.util.find_spec(name) is not None]
    if not found:
        raise MissingPackageError(
            "abele.lightning needs Lightning, which is not installed", remedy="pip install 'abele[lightning]'"
        )
    return found[0]


pl: Any = importlib.import_module("lightning.pytorch" if _package() == "lightning" else _package())
