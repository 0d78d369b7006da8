"""``from abele import popdist``: what programs ask about the job that they are part of, by PopDist's names.

Programs that say ``import popdist`` run unchanged after :func:`install`, or :func:`abele.popxl.install`.
"""

from typing import Any

from abele.frontends import popdist as _popdist
from abele.frontends.aliases import alias as _alias
from abele.frontends.popdist import *  # noqa: F403
from abele.frontends.popdist import __all__ as _names

_alias(__name__, "abele.frontends.popdist")


def install() -> None:
    """Let ``popdist`` be imported under this name from now on in this process.

    Raises:
        MissingPackageError: Another package of this name is there.
    """
    _alias("popdist", "abele.frontends.popdist")


def __getattr__(name: str) -> Any:
    return getattr(_popdist, name)


__all__ = ["install", *_names]
