"""``from abele import popxl_addons as addons``: modules, named variables and transforms over popxl."""

from abele.frontends.aliases import alias as _alias
from abele.frontends.popxl_addons import *  # noqa: F403
from abele.frontends.popxl_addons import __all__ as _names

MODULES = {
    "layers.group_norm": "layers.norms",
    "layers.layer_norm": "layers.norms",
    "layers.layer_norm_distributed": "layers.norms",
    "ops.layer_norm_distributed": "layers.norms",
    "transforms.recomputation": "transforms.recompute",
}
"""Modules of the addons whose names are others here."""

_alias(__name__, "abele.frontends.popxl_addons", MODULES)

__all__ = [*_names]
