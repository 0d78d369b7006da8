"""Models change their parameters and buffers in place: what is assigned anew would be lost after the recorded call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from abele.frontends.poptorch.errors import Error


@contextmanager
def state_kept(model: torch.nn.Module) -> Iterator[None]:
    """Raise if a parameter or buffer of ``model`` is another tensor, or gone, after what runs inside.

    Raises:
        Error: One is; it is named.
    """
    before = _state(model)
    yield
    after = _state(model)
    for name, (kind, tensor) in before.items():
        now = after.get(name)
        if now is None:
            raise Error(f"{kind} {name} is removed from the model when calling the forward method.")
        if now[1] is not tensor:
            raise Error(
                f"{kind} {name} is reassigned within the model when calling the forward method. This is not supported. "
                f"Consider using self.{name}.copy_(src) to copy data from a source tensor, where src is the name of "
                "the source tensor."
            )


def check_buffers(model: torch.nn.Module) -> None:
    """Raise if a buffer is no tensor.

    Raises:
        Error: One is not; it is named.
    """
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if not isinstance(buffer, torch.Tensor):
            raise Error(f"All buffers must be an instance of torch.Tensor (Got {type(buffer)})", at=f"buffer {name!r}")


def _state(model: torch.nn.Module) -> dict[str, tuple[str, torch.Tensor]]:
    """The parameters and buffers by name, each with its kind."""
    parameters = {name: ("Parameter", t) for name, t in model.named_parameters(remove_duplicate=False)}
    buffers = {name: ("Buffer", t) for name, t in model.named_buffers(remove_duplicate=False)}
    return {**parameters, **buffers}
