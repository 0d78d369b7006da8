"""Orders of arguments in PopLibs' poprand headers that are not our own; see :mod:`abele.poplibs.poputil.arguments`."""

from __future__ import annotations

from abele.poplibs.poputil.arguments import Forms

_DRAWN = "seed modifier reference out_type"

FORMS: Forms = {
    "bernoulli": (f"{_DRAWN} probability prog",),
    "dropout": ("seed modifier tensor reference keep_probability scale prog",),
    "log_uniform": (f"{_DRAWN} low high prog base?",),
    "normal": (f"{_DRAWN} mean std prog",),
    "shaped_dropout": ("seed modifier tensor reference keep_probability scale prog",),
    "truncated_normal": (f"{_DRAWN} mean std alpha prog",),
    "uniform": (f"{_DRAWN} low high prog",),
}
