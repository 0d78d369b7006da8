"""Names of tensors inside of a model: PopTorch's, and the network's."""

from __future__ import annotations

ANCHOR_NAMES = {"Gradient___": "gradient/", "UpdatedVar___": "updated/"}
"""Prefixes of a parameter's name in PopART, with those of networks."""


def network_name(name: str) -> str:
    """The network's name of a tensor that PopTorch has a name for."""
    for theirs, ours in ANCHOR_NAMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name
