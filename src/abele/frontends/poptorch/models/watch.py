"""Watching a compiled model: replaced parts are found by a few look-ups before each call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class _Members:
    """Modules, parameters or buffers of one module, as they were."""

    path: str
    kind: str
    table: dict[str, Any]
    then: dict[str, Any]

    def change(self) -> str | None:
        for name in (*self.then, *self.table):
            if self.table.get(name) is not self.then.get(name):
                change = "gone" if name not in self.table else "new" if name not in self.then else "another one"
                return f"the {self.kind} {self.path + name!r} is {change}"
        return None


class ModelWatch:
    """Attributes of a model that were compiled in.

    Args:
        model: The model.
        training: True if it matters which parameters are trained.
    """

    def __init__(self, model: torch.nn.Module, *, training: bool) -> None:
        self._training = training
        self._members = list(_members(model))
        self._tensors = {
            f"{m.path}{name}": t
            for m in self._members
            if m.kind != "module"
            for name, t in m.then.items()
            if t is not None
        }
        self._form = self._forms()

    def _forms(self) -> list[tuple[torch.dtype, torch.Size, bool]]:
        with torch._C.DisableTorchFunctionSubclass():
            return [(t.dtype, t.shape, t.requires_grad) for t in self._tensors.values()]

    def change(self) -> str | None:
        """First difference from the compiled model, in words; None if there is none."""
        for members in self._members:
            change = members.change()
            if change is not None:
                return change
        forms = self._forms()
        if forms == self._form:
            return None
        for name, then, now in zip(self._tensors, self._form, forms, strict=True):
            for what, before, after in zip(("type", "shape"), then, now, strict=False):
                if before != after:
                    return f"the {what} of {name!r} is {after}, and was {before}"
            if self._training and then != now:
                return f"{name!r} has requires_grad={now[2]}, and had {then[2]}"
        return None


def _members(model: torch.nn.Module) -> Iterator[_Members]:
    for path, module in model.named_modules():
        start = f"{path}." if path else ""
        tables = {"module": module._modules, "parameter": module._parameters, "buffer": module._buffers}
        for kind, table in tables.items():
            if table:
                yield _Members(start, kind, table, dict(table))
