"""Effects of a recorded call on the model itself.

Buffers that ``forward`` assigns anew take the new value: a copy into the buffer is recorded, as if the program had
said ``self.state.copy_(new)``. Parameters are changed in place alone. A buffer without elements, or one that
``forward`` registers, gets its shape with the first call: it begins as the first value assigned, which has to be known.
Other attributes that ``forward`` sets, such as counts and shapes, stay, for PyTorch's export sets them back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_buffer_registration_hook

from abele.frontends.poptorch.capture.known_values import known_value, on_host
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.values import structures

_RECORDED = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)

_CURRENT: ContextVar[ModelState | None] = ContextVar("abele_model_state", default=None)


def current_state() -> ModelState | None:
    """The state of the model that is being recorded."""
    return _CURRENT.get()


class NewBuffersError(Error):
    """Buffers that get their shapes with the first call: the model is recorded again with them.

    Args:
        made: Module, name and first values of each.
    """

    def __init__(self, made: Sequence[tuple[torch.nn.Module, str, torch.Tensor]]) -> None:
        super().__init__(f"{made[0][1]!r} gets its shape with the first call")
        self._made = made

    def register(self) -> None:
        """Let the model have them."""
        for module, name, values in self._made:
            module._buffers[name] = values


@dataclass(frozen=True)
class _Owned:
    """A parameter or buffer as it was before the call."""

    kind: str
    module: torch.nn.Module
    key: str
    tensor: torch.Tensor


@dataclass
class ModelState:
    """The parameters and buffers of a model while one call of it is recorded.

    Attributes:
        before: Those that there were, by name.
    """

    model: torch.nn.Module
    before: dict[str, _Owned] = field(default_factory=dict)
    _first: dict[tuple[int, str], torch.Tensor | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = _state(self.model)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Note the first values of new buffers inside."""
        known = {(id(o.module), o.key): o.tensor for o in self.before.values() if o.kind == "Buffer"}

        def note(module: torch.nn.Module, name: str, value: Any) -> None:
            was, place = known.get((id(module), name)), (id(module), name)
            if place in self._first or not isinstance(value, torch.Tensor) or not value.numel():
                return
            if was is None or not was.numel():
                first = known_value(value)
                # A copy: changes in place follow.
                with on_host():
                    self._first[place] = None if first is None else first.clone()

        handle = register_module_buffer_registration_hook(note)
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            handle.remove()

    def settle(self, returned: Any = None) -> Any:
        """Record copies of what was assigned to buffers into them; gives ``returned``, which keeps what it was.

        Raises:
            Error: A parameter is another one, or something is gone; a buffer was assigned another shape or type.
            NewBuffersError: A buffer got its shape.
        """
        after = _state(self.model)
        self._check_new(after)
        assigned = {name: after[name].tensor for name, o in self.before.items() if self._is_assigned(name, o, after)}
        if not assigned:
            return returned
        originals = {_memory(self.before[name].tensor) for name in assigned}

        def apart(value: torch.Tensor) -> torch.Tensor:
            return value.clone() if _memory(value) in originals else value

        returned = structures.map_tensors(apart, returned)
        with torch.no_grad():
            values = {name: apart(value) for name, value in assigned.items()}
            for name, value in values.items():
                owned = self.before[name]
                owned.tensor.copy_(value)
                owned.module._buffers[owned.key] = owned.tensor
        return returned

    def copies(self) -> list[torch.Tensor]:
        """The buffers as they are here."""
        return [o.tensor.clone() for o in self.before.values() if o.kind == "Buffer"]

    def _is_assigned(self, name: str, owned: _Owned, after: dict[str, _Owned]) -> bool:
        """True for a buffer that is another tensor now."""
        now, kind = after.get(name), owned.kind
        if now is None:
            raise Error(f"{kind} {name} is removed from the model when calling the forward method.")
        if now.tensor is owned.tensor:
            return False
        fits = _form(now.tensor) == _form(owned.tensor)
        if kind == "Parameter" or not fits:
            raise Error(
                f"{kind} {name} is reassigned within the model when calling the forward method. This is not supported. "
                f"Consider using self.{name}.copy_(src) to copy data from a source tensor, where src is the name of "
                "the source tensor.",
                because=None if fits else f"it is {_described(owned.tensor)}, and gets {_described(now.tensor)}",
                remedy=None if fits else f"register {name!r} with the shape and type that forward gives it",
            )
        return True

    def _check_new(self, after: dict[str, _Owned]) -> None:
        """Raise for buffers that had no shape before the call."""
        made: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
        for name, now in after.items():
            owned = self.before.get(name)
            if owned is not None and (owned.tensor.numel() or now.tensor is owned.tensor or not now.tensor.numel()):
                continue
            first = self._first.get((id(now.module), now.key))
            if owned is None:
                del now.module._buffers[now.key]
            if first is None or _form(first) != _form(now.tensor):
                done = "is registered" if owned is None else "gets its shape"
                raise Error(
                    f"{now.kind} {name} {done} when calling the forward method, and what it begins with depends on "
                    "the inputs",
                    remedy=f"register {name!r} in __init__, with zeros of {_described(now.tensor)}",
                )
            made.append((now.module, now.key, first))
        if made:
            raise NewBuffersError(made)


def _memory(tensor: torch.Tensor) -> StorageWeakRef:
    """Key of tensors that show the same elements."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _form(tensor: torch.Tensor) -> tuple[tuple[Any, ...], torch.dtype]:
    return tuple(tensor.shape), tensor.dtype


def _described(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} of {list(tensor.shape)}"


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
        values = [value for before in self._before for value in before.values()]
        self._contents = [(value, copy.copy(value)) for value in values if type(value) in (list, dict)]

    def note(self) -> None:
        """Remember the present attributes."""
        self._after = [_own_attributes(module) for module in self._modules]

    def keep(self) -> None:
        """Set changed attributes back as :meth:`note` saw them, but for holders of recorded tensors without values."""
        for container, contents in self._contents:
            if _is_recorded(container):
                _refill(container, contents)
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


def _refill(container: Any, contents: Any) -> None:
    """Give a list or dict its old contents back."""
    container.clear()
    if isinstance(container, dict):
        container.update(contents)
    else:
        container.extend(contents)


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


def _state(model: torch.nn.Module) -> dict[str, _Owned]:
    """The parameters and buffers by name, each with its place."""
    found: dict[str, _Owned] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        start = f"{path}." if path else ""
        for kind, table in (("Parameter", module._parameters), ("Buffer", module._buffers)):
            for key, tensor in table.items():
                if tensor is not None:
                    found[start + key] = _Owned(kind, module, key, tensor)
    return found
