"""Arrays by name that sessions share: parameters, buffers and the state of optimisers, as the host has them.

Each array lives in a cell of its own. A cell knows which session may hold newer values on the device, and asks it for
them when somebody looks; and it counts how often it was written, by which a session knows that it has to upload it
again. Sharing is by cell: two sessions over the same cells train and use the same weights, whatever each calls them.
What a front end has instead of NumPy arrays becomes a subclass of :class:`SharedArray`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import SignatureError, UnknownArrayError, nearest


class Changes:
    """Time of the last write, hold or release of any cell of the process: a token that each change replaces.

    A session that compares tokens before a run need not look at its cells one by one. Whoever changes a cell notes it
    afterwards, and whoever looks takes the token first, so that a change in between is seen the next time.
    """

    def __init__(self) -> None:
        self.last = object()

    def note(self) -> None:
        """A cell has changed."""
        self.last = object()


CHANGES = Changes()


class Holder(Protocol):
    """Object that may have newer values than the host."""

    def bring_to_host(self) -> bool:
        """Copy them to the host if the device changed them since the last time; returns whether it did."""


class SharedArray:
    """One array on the host, which a session may hold on a device.

    Args:
        values: The first values; they are copied.

    Attributes:
        notes_writes: True if every write of the host's copy is noted in :data:`CHANGES`; otherwise sessions look at
            ``version`` before each run. Subclasses say so themselves; memory that others write too cannot.
        follows_host: True if writes on the host reach the next run of every session, also of those that take others
            when they are told to. What runs change must not be.
    """

    notes_writes: ClassVar[bool] = True
    follows_host: bool = False

    def __init_subclass__(cls) -> None:
        cls.notes_writes = cls.__dict__.get("notes_writes", False)

    def __init__(self, values: npt.ArrayLike) -> None:
        self._array = np.array(values)
        self._version = 0

    @classmethod
    def owning(cls, values: Array) -> Self:
        """One of an array that its maker leaves to it, without a copy."""
        made = cls(())
        made._array = values
        return made

    _holder: weakref.ref[Any] | None = None

    @property
    def version(self) -> int:
        """Times that the host's copy was written."""
        return self._version

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return self._array.shape

    @property
    def holder(self) -> Holder | None:
        """The object that may have newer values, if there is one."""
        found: Holder | None = self._holder() if self._holder is not None else None
        return found

    def hold(self, holder: Holder) -> None:
        """Let ``holder`` be asked for the values from now on."""
        self._holder = weakref.ref(holder)
        CHANGES.note()

    def release(self, holder: Holder) -> None:
        """Ask ``holder`` no longer; the host's copy is as it left it."""
        if self.holder in (holder, None):
            self._holder = None
            CHANGES.note()

    def bring_up_to_date(self, *, but: Holder | None = None) -> bool:
        """Get the newest values, unless ``but`` has them; returns whether another holder has them at all."""
        holder = self.holder
        if holder is None or holder is but:
            return False
        holder.bring_to_host()
        return True

    def values(self) -> Array:
        """The host's copy as it is, to be read at once."""
        return self._array

    def assign(self, values: npt.ArrayLike) -> None:
        """Write the host's copy."""
        np.copyto(self._array, values, casting="unsafe")
        self._version += 1
        CHANGES.note()


class SharedArrays(MutableMapping[str, Array]):
    """Arrays by name; reading one gives a copy of its newest values, and writing one reaches every session's next run.

    Args:
        arrays: The first values; they are copied.
    """

    def __init__(self, arrays: Mapping[str, npt.ArrayLike | SharedArray] | None = None) -> None:
        self._cells: dict[str, SharedArray] = {}
        for name, values in (arrays or {}).items():
            self._cells[name] = values if isinstance(values, SharedArray) else SharedArray(values)

    def cell(self, name: str) -> SharedArray:
        """The cell of an array.

        Raises:
            UnknownArrayError: There is none of this name.
        """
        if name not in self._cells:
            close = nearest(name, self._cells)
            raise UnknownArrayError(
                f"there is no array {name!r}",
                because=f"there are {', '.join(sorted(self._cells)) or 'none at all'}",
                remedy=f"did you mean {close!r}?" if close else None,
            )
        return self._cells[name]

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise unless there is an array of this name and shape.

        Raises:
            UnknownArrayError: There is none of this name.
            SignatureError: It has another shape.
        """
        found = self.cell(name).shape
        if found != shape:
            raise SignatureError(
                f"{name!r} has shape {list(found)}, not {list(shape)}",
                because="sessions are compiled for the shapes of their weights",
                remedy="make another SharedArrays and another session for another shape",
            )

    def __getitem__(self, name: str) -> Array:
        cell = self.cell(name)
        cell.bring_up_to_date()
        return cell.values().copy()

    def __setitem__(self, name: str, values: npt.ArrayLike | SharedArray) -> None:
        cell = self._cells.get(name)
        if cell is None:
            self._cells[name] = values if isinstance(values, SharedArray) else SharedArray(values)
            CHANGES.note()
            return
        given = values.values() if isinstance(values, SharedArray) else np.asarray(values)
        self.check(name, given.shape)
        cell.assign(given)

    def __delitem__(self, name: str) -> None:
        self.cell(name)
        del self._cells[name]
        CHANGES.note()

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __contains__(self, name: object) -> bool:
        return name in self._cells

    def __repr__(self) -> str:
        return f"SharedArrays({', '.join(f'{n} {list(c.shape)}' for n, c in self._cells.items())})"
