"""Safetensors files of NumPy arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from abele.arrays import Array
from abele.errors import TypeMismatchError
from abele.weights.kinds import PLAIN
from abele.writing import writing_whole

_NAMES = {kind.block: kind.name for kind in PLAIN if kind.decode(np.zeros(1, kind.block)).dtype == kind.block}
_ALIGNMENT = 8
"""Bytes of which a header is a multiple, so that data are aligned. Source: the package ``safetensors``."""


def write_safetensors(
    path: str | os.PathLike[str], arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """A file of arrays by name.

    Args:
        path: The file; one that is there is replaced once the new one is whole.
        arrays: Arrays of floats of 16 to 64 bits, integers or truth values.
        metadata: Texts by name.

    Raises:
        TypeMismatchError: An array is of a type that the format does not have.
        FileFormatError: The file cannot be written.
    """
    # Wide elements first, so that all of them are aligned.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, array in ordered:
        kind = _NAMES.get(array.dtype.newbyteorder("<"))
        if kind is None:
            raise TypeMismatchError(
                f"array {name!r} of {array.dtype} cannot be in a safetensors file",
                remedy=f"one of {', '.join(str(dtype) for dtype in _NAMES)}",
            )
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with writing_whole(Path(path)) as part, part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
