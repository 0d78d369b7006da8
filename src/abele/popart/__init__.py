"""``from abele import popart``: PopART's builder and sessions on the machine that Abele models.

Programs that say ``import popart`` run unchanged after :func:`install`, or by ``python -m abele.popart program.py``.
"""

import sys
from importlib.util import find_spec

from abele.errors import MissingPackageError
from abele.frontends.popart import *  # noqa: F403
from abele.frontends.popart import __all__ as _names


def install(name: str = "popart") -> None:
    """Let ``import popart`` find this package from now on in this process.

    What ``abele.poptorch.install()`` left under that name, the enumerations of session options, is part of it.

    Args:
        name: The name that programs import.

    Raises:
        MissingPackageError: Another package of this name was imported already.
    """
    own, there = sys.modules[__name__], sys.modules.get(name)
    is_ours = there is None or getattr(there, "__name__", "").startswith("abele.")
    if not is_ours or (there is None and name != "popart" and find_spec(name) is not None):
        raise MissingPackageError(
            f"there is a package {name} already, {getattr(there, '__file__', None) or name}",
            remedy="call abele.popart.install() before it is imported",
        )
    sys.modules[name] = own


__all__ = ["install", *_names]
