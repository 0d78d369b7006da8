"""``from abele import popxl``: PopXL's graphs, ops and sessions on the machine that Abele models.

Programs that say ``import popxl`` run unchanged after :func:`install`, or by ``python -m abele.popxl program.py``.
"""

from typing import Any

from abele.frontends import popxl as _popxl
from abele.frontends.aliases import alias as _alias
from abele.frontends.popxl import *  # noqa: F403
from abele.frontends.popxl import __all__ as _names

_MODULES = {
    "context": "graph",
    "module": "ir",
    "remote_buffer": "remote",
    "replica_grouping": "replicas",
    "tensor_location": "locations",
    "transforms.autodiff": "transforms",
    "transforms.decompose_sum": "transforms",
    "transforms.io_tile_exchange": "transforms",
    "transforms.merge_exchange": "transforms",
}
"""Modules of PopXL whose names are others here."""


def _modules_of_ops() -> dict[str, str]:
    """PopXL's modules of one op each: all names of the ones that have the ops here are found there."""
    ops = _popxl.ops
    found = {"ops.collectives.collectives": "ops.collectives"}
    for below, names in (("ops", ops), ("ops.collectives", ops.collectives), ("ops.var_updates", ops.var_updates)):
        for name in names.__all__:
            place = getattr(getattr(names, name), "__module__", "")
            if place.startswith(f"{_popxl.__name__}."):
                found[f"{below}.{name}"] = place.removeprefix(f"{_popxl.__name__}.")
                if name.endswith("_"):
                    found.setdefault(f"{below}.{name[:-1]}", found[f"{below}.{name}"])
    return found


_MODULES |= _modules_of_ops()

_alias(__name__, "abele.frontends.popxl", _MODULES)


def install() -> None:
    """Let ``popxl``, ``popxl_addons``, ``popdist`` and ``popart`` be imported from now on in this process.

    Raises:
        MissingPackageError: Another package of such a name is there.
    """
    _alias("popxl", "abele.frontends.popxl", _MODULES)
    from abele.popxl_addons import MODULES

    _alias("popxl_addons", "abele.frontends.popxl_addons", MODULES)
    _alias("popdist", "abele.frontends.popdist")
    _alias("popart", "abele.popart")


def __getattr__(name: str) -> Any:
    return getattr(_popxl, name)


__all__ = ["install", *_names]
