"""Tensors that lie in a file, and the file as a mapping of names to them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import ElementRangeError, FileFormatError, TypeMismatchError, UnknownArrayError, nearest
from abele.weights.kinds import KINDS, StoredKind

if TYPE_CHECKING:
    from abele.weights.quantised import QuantisedMatrix

ELEMENTS_AT_ONCE = 1 << 18
"""Numbers that are decoded together: their f32 fit a core's cache."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file; nothing of it is read before it is asked for.

    Attributes:
        name: Its name in the file.
        shape: Row-major, so a linear layer's weight is [out, in].
        kind: Name of its way of storing numbers, one of ``KINDS``.
        blocks: The stored blocks [n], mapped from the file and read-only.
        path: The file.
        offset: Its first byte in that file.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    blocks: Array = field(repr=False, compare=False)
    path: Path
    offset: int

    @property
    def num_elements(self) -> int:
        """Numbers that it holds."""
        return math.prod(self.shape)

    @property
    def stored_bytes(self) -> int:
        """Bytes in the file."""
        return int(self.blocks.nbytes)

    def read(self, dtype: npt.DTypeLike = np.float32) -> Array:
        """Numbers of shape ``shape`` as ``dtype``, a copy that may be written.

        Raises:
            TypeMismatchError: ``dtype`` cannot hold numbers of this kind, as integers for floats.
            ElementRangeError: A finite number overflows ``dtype``.
        """
        target, kind = np.dtype(dtype), KINDS[self.kind]
        natural = kind.decode(self.blocks[:0]).dtype
        if not np.can_cast(natural, target, "same_kind"):
            raise TypeMismatchError(
                f"{self.path}: tensor {self.name!r} of kind {self.kind} cannot be read as {target}",
                remedy=f"read it as {natural}",
            )
        numbers = np.empty((len(self.blocks), *(() if kind.elements == 1 else (kind.elements,))), target)
        step = max(1, ELEMENTS_AT_ONCE // kind.elements)
        try:
            # Scales that are not finite are the file's own, and stay.
            with np.errstate(over="raise", invalid="ignore"):
                for start in range(0, len(self.blocks), step):
                    numbers[start : start + step] = kind.decode(self.blocks[start : start + step])
        except FloatingPointError:
            raise ElementRangeError(
                f"{self.path}: tensor {self.name!r} has numbers that overflow {target}", remedy="read it as float32"
            ) from None
        return numbers.reshape(self.shape)

    def quantised(self) -> QuantisedMatrix | None:
        """The matrix with the codes and scales of the file, without loss.

        None for kinds that are neither Q8_0, Q4_0 nor Q4_1, and for tensors that are no matrices.
        """
        if self.kind not in ("Q8_0", "Q4_0", "Q4_1") or len(self.shape) != 2:
            return None
        from abele.weights.quantised import QuantisedMatrix

        rows, columns = self.shape
        groups = (rows, columns // 32)
        scales = self.blocks["scale"].reshape(groups)
        if self.kind == "Q8_0":
            return QuantisedMatrix("int8", self.blocks["codes"].reshape(rows, columns), scales, None, 32)
        offsets = self.blocks["offset"].reshape(groups) if self.kind == "Q4_1" else None
        return QuantisedMatrix("int4", _neighbours(self.blocks["codes"]).reshape(rows, -1), scales, offsets, 32)


def _neighbours(codes: Array) -> Array:
    """Bytes [n, 16] of element pairs (0, 1), (2, 3), … out of bytes of pairs (0, 16), (1, 17), …"""
    even, odd = codes[:, 0::2], codes[:, 1::2]
    return np.concatenate([even & 15 | odd << 4, even >> 4 | odd & 0xF0], axis=1)


class WeightFile(Mapping[str, StoredTensor]):
    """Tensors of a file, or of several that belong together, by name in the files' order.

    Attributes:
        path: The file, index or folder that was opened.
        format: ``safetensors`` or ``gguf``.
        metadata: Entries beside the tensors: strings for safetensors, typed values for GGUF.
    """

    def __init__(
        self, path: Path, format: str, tensors: Mapping[str, StoredTensor], metadata: Mapping[str, Any]
    ) -> None:
        self.path = path
        self.format = format
        self.metadata = metadata
        self._tensors = dict(tensors)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors."""
        return tuple(self._tensors)

    def __getitem__(self, name: str) -> StoredTensor:
        try:
            return self._tensors[name]
        except KeyError:
            close = nearest(name, self._tensors)
            raise UnknownArrayError(
                f"{self.path}: there is no tensor {name!r}",
                remedy=f"did you mean {close!r}?" if close else None,
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<{self.format} {self.path.name}: {len(self)} tensors, {self.stored_bytes:,} B>"

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(tensor.stored_bytes for tensor in self.values())

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """Stored bytes of each kind."""
        found: dict[str, int] = {}
        for tensor in self.values():
            found[tensor.kind] = found.get(tensor.kind, 0) + tensor.stored_bytes
        return found


def mapped(path: Path) -> Array:
    """A file's bytes [n], mapped and read-only.

    Raises:
        FileFormatError: It cannot be opened, or is empty.
    """
    if path.exists() and not path.is_file():  # a pipe would wait for a writer
        raise FileFormatError(f"{path}: cannot be read as weights", because="it is no file")
    try:
        with path.open("rb") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError) as error:
        because = "it is empty" if isinstance(error, ValueError) else error.strerror
        raise FileFormatError(f"{path}: cannot be read as weights", because=because) from error


@dataclass(frozen=True)
class PlacedTensor:
    """A tensor as a file's header tells of it, not yet believed.

    Attributes:
        name: Its name.
        kind: Its way of storing numbers.
        shape: Row-major.
        begin: First byte, from the start of the file.
        at: The place in the file that says so.
    """

    name: str
    kind: StoredKind
    shape: tuple[int, ...]
    begin: int
    at: str

    @property
    def num_bytes(self) -> int:
        """Bytes that shape and kind need."""
        return math.prod(self.shape) // self.kind.elements * self.kind.block_bytes

    @property
    def end(self) -> int:
        """The byte after its last."""
        return self.begin + self.num_bytes


def stored(path: Path, data: Array, first: int, placed: list[PlacedTensor]) -> dict[str, StoredTensor]:
    """Tensors at their places, once those were found to lie in the file and apart from each other.

    Args:
        path: The file, for errors.
        data: Its bytes.
        first: The byte at which tensors may begin.
        placed: The tensors in the header's order.

    Raises:
        FileFormatError: A name appears twice; a place lies outside the file or overlaps another.
    """
    reached, before = first, None
    for one in sorted(placed, key=lambda one: (one.begin, one.end)):
        if one.kind.elements > 1 and (not one.shape or one.shape[-1] % one.kind.elements):
            raise FileFormatError(
                f"{path}: tensor {one.name!r} of shape {one.shape} has rows that are no whole blocks",
                at=one.at,
                because=f"{one.kind.name} has blocks of {one.kind.elements}",
            )
        if one.begin < first or one.end > len(data):
            raise FileFormatError(
                f"{path}: tensor {one.name!r} lies outside the file",
                at=one.at,
                because=f"its bytes are {one.begin:,} to {one.end:,}, the file's data {first:,} to {len(data):,}",
                remedy="fetch the file again if it is cut off",
            )
        if one.num_bytes and one.begin < reached and before is not None:
            raise FileFormatError(
                f"{path}: tensors {before.name!r} and {one.name!r} overlap",
                at=one.at,
                because=f"the first ends at byte {before.end:,}, the second begins at byte {one.begin:,}",
            )
        if one.num_bytes:
            reached, before = one.end, one
    found: dict[str, StoredTensor] = {}
    for one in placed:
        if one.name in found:
            raise FileFormatError(f"{path}: there are two tensors {one.name!r}", at=one.at)
        blocks = data[one.begin : one.end].view(one.kind.block)
        found[one.name] = StoredTensor(one.name, one.shape, one.kind.name, blocks, path, one.begin)
    return found
