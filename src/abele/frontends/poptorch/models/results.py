"""Results of calls: plain tensors that explain why they cannot be differentiated."""

from __future__ import annotations

from typing import Any

import torch

from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.values import structures

BACKWARD = (
    "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
    "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you should "
    "use a trainingModel instead."
)


def _refuse_backward(*args: Any, **kwargs: Any) -> None:
    raise Error(BACKWARD)


def mark_results(tree: Any) -> Any:
    """The tree, with ``backward()`` of every tensor in it refused."""
    for leaf in structures.leaves(tree):
        if isinstance(leaf, torch.Tensor):
            vars(leaf)["backward"] = _refuse_backward
    return tree
