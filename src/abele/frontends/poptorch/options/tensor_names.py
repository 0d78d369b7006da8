"""Names of tensors inside of a model: PopTorch's, and the network's."""

from __future__ import annotations

ANCHOR_NAMES = {"Gradient___": "gradient/", "UpdatedVar___": "updated/"}
"""What stands before the name of a parameter, and what networks have for it."""


def network_name(name: str) -> str:
    """The network's name of a tensor that PopTorch has a name for."""
    for theirs, ours in ANCHOR_NAMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name
