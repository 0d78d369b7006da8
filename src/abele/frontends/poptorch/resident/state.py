"""The state of programs, by name: parameters and buffers that stay on the device from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abele.errors import ElementRangeError, SignatureError, TypeMismatchError, UnknownArrayError, nearest
from abele.frontends.poptorch.errors import as_poptorch_errors
from abele.frontends.poptorch.models.weights import TensorCell
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.session import Session
from abele.session.arrays import Holder, SharedArray


class ResidentCell(TensorCell):
    """A tensor of a module as its programs see it: plain all the time, and written when somebody says so."""

    notes_writes = True

    def assign(self, values: npt.ArrayLike) -> None:
        """Write the tensor; nobody else holds it, so that no session has to look for the change."""
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            self._held.copy_(from_array(np.asarray(values)))

    def hold(self, holder: Holder) -> None:
        """Note who has the newest values."""
        SharedArray.hold(self, holder)

    def release(self, holder: Holder) -> None:
        """Ask ``holder`` no longer."""
        SharedArray.release(self, holder)


class ProgramState(MutableMapping[str, torch.Tensor]):
    """Parameters and buffers of programs by name, as ``state_dict`` has them.

    Reading one brings that one from the device, and writing one sends that one: a page table is written between runs
    while the cache beside it stays where it is. A tensor has the name that its module has for it, and
    ``program.name``, which tells tensors of one name in two modules apart.

    Args:
        tensors: The host's tensors, by the names that iteration gives.
        aliases: Those names, by further ones.
        ambiguous: Names that two modules have for different tensors, each with the names that tell them apart.
        session: Gives the session once it is on the device.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        aliases: Mapping[str, str],
        ambiguous: Mapping[str, tuple[str, ...]],
        session: Callable[[], Session | None],
    ) -> None:
        self._tensors = dict(tensors)
        self._aliases = dict(aliases)
        self._ambiguous = dict(ambiguous)
        self._session = session

    def name_of(self, name: str) -> str:
        """The one name under which a tensor is listed.

        Raises:
            UnknownArrayError: There is none of this name, or there are two.
        """
        if name in self._tensors:
            return name
        if name in self._aliases:
            return self._aliases[name]
        apart = self._ambiguous.get(name)
        if apart is not None:
            raise UnknownArrayError(
                f"{name!r} is the name of {len(apart)} tensors", remedy=f"one of {', '.join(map(repr, apart))}"
            )
        close = nearest(name, [*self._tensors, *self._aliases])
        raise UnknownArrayError(
            f"the programs have no state {name!r}",
            because=f"there are {', '.join(self._tensors) or 'none at all'}",
            remedy=f"did you mean {close!r}?" if close else None,
        )

    def __getitem__(self, name: str) -> torch.Tensor:
        """A copy of a tensor as the device has it."""
        with as_poptorch_errors():
            found = self.name_of(name)
            tensor, session = self._tensors[found], self._session()
            if session is None or found not in session.compiled.ends.weights:
                return tensor.detach().clone()
            return from_array(session.read(found)).to(tensor.dtype)

    def __setitem__(self, name: str, values: Any) -> None:
        """Write a tensor on the host, and on the device if it is there.

        Raises:
            SignatureError: Values of another shape.
            TypeMismatchError: Values of another kind, such as floats for whole numbers.
            ElementRangeError: Whole numbers that do not fit in the 32 bits of the device.
        """
        with as_poptorch_errors():
            found = self.name_of(name)
            tensor, session = self._tensors[found], self._session()
            given = torch.as_tensor(values)
            _check(found, tensor, given)
            with torch.no_grad():
                if session is None or found not in session.compiled.ends.weights:
                    tensor.copy_(given)
                    return
                session.weights.cell(found).assign(to_array(given.to(tensor.dtype)))
            session.upload([found])

    def __delitem__(self, name: str) -> None:
        """Refused: programs keep their state.

        Raises:
            TypeMismatchError: Always.
        """
        raise TypeMismatchError(f"the state {name!r} cannot be deleted", remedy="state[name] = new values")

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors or name in self._aliases

    def __repr__(self) -> str:
        shown = (f"{name} {list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in self._tensors.items())
        return f"ProgramState({', '.join(shown)})"


_RANK = {"b": 0, "i": 1, "u": 1, "f": 2}
"""Kinds of number by what they hold: each holds those before it."""


def _check(name: str, tensor: torch.Tensor, given: torch.Tensor) -> None:
    if given.shape != tensor.shape:
        raise SignatureError(
            f"the state {name!r} has shape {list(tensor.shape)}, got {list(given.shape)}",
            remedy="programs are compiled for the shapes of their state: make others for another shape",
        )
    if _RANK[_kind(given)] > _RANK[_kind(tensor)]:
        raise TypeMismatchError(f"the state {name!r} is {tensor.dtype}, got {given.dtype}", remedy="convert it first")
    if _kind(tensor) == "i" and given.numel() and given.dtype in (torch.int64, torch.uint64):
        limits = torch.iinfo(torch.int32 if tensor.dtype == torch.int64 else tensor.dtype)
        low, high = int(given.min()), int(given.max())
        if low < limits.min or high > limits.max:
            raise ElementRangeError(
                f"the state {name!r} cannot hold {low if low < limits.min else high}",
                because=f"it has {32 if tensor.dtype == torch.int64 else limits.bits} bits on the device",
                remedy=f"numbers from {limits.min} to {limits.max}",
            )


def _kind(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "b"
    return "f" if tensor.is_floating_point() else "i"
