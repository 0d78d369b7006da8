"""What a recorded call does to the model itself.

Models change their parameters and buffers in place: what is assigned anew would be lost after the recorded call. Other
attributes that ``forward`` sets, such as counts and shapes, stay, for PyTorch's export sets them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses import FakeTensor

from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.values import structures

_RECORDED = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)


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


class Attributes:
    """The attributes of a model's own modules that are neither parameters, buffers nor modules.

    PyTorch's modules set none in ``forward``.

    Args:
        model: The model.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = [m for m in model.modules() if not type(m).__module__.startswith("torch.nn.")]
        self._before = [_own_attributes(module) for module in self._modules]
        self._after = self._before

    def note(self) -> None:
        """Remember what they are now."""
        self._after = [_own_attributes(module) for module in self._modules]

    def keep(self) -> None:
        """Set what changed to what :meth:`note` saw; of what holds recorded tensors, which have no values, nothing."""
        for module, before, after in zip(self._modules, self._before, self._after, strict=True):
            for name in {**before, **after}:
                first, value = before.get(name, _ABSENT), after.get(name, _ABSENT)
                if value is not first and _is_recorded(value):
                    value = first
                if module.__dict__.get(name, _ABSENT) is value:
                    continue
                if value is _ABSENT:
                    del module.__dict__[name]
                else:
                    module.__dict__[name] = value


_ABSENT = object()
_OF_MODULES = frozenset(torch.nn.Module().__dict__)


def _own_attributes(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value for name, value in module.__dict__.items() if name not in _OF_MODULES}


def _is_recorded(value: Any) -> bool:
    """True if a value holds what stands for a tensor or a number of the device."""
    return any(isinstance(leaf, _RECORDED) for leaf in structures.leaves(value))


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
