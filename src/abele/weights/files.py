"""Weights by path: a file, an index of several, or a folder of them."""

from __future__ import annotations

import os
from pathlib import Path

from abele.errors import FileFormatError
from abele.weights.gguf import MAGIC, read_gguf
from abele.weights.safetensors import INDEX_SUFFIX, read_index, read_safetensors
from abele.weights.stored import WeightFile


def open_weights(path: str | os.PathLike[str]) -> WeightFile:
    """Tensors at a path, mapped: nothing but headers is read.

    Args:
        path: A ``.safetensors`` or ``.gguf`` file, an index ``….safetensors.index.json``, or a folder with one of them.
            Files of other names are told apart by their first bytes.

    Raises:
        FileFormatError: There is no such file, it is damaged, or a folder has none or several that could be meant.
    """
    place = Path(path)
    if place.is_dir():
        place = _within(place)
    if place.name.endswith(INDEX_SUFFIX):
        return read_index(place)
    if place.suffix == ".gguf":
        return read_gguf(place)
    if place.suffix == ".safetensors":
        return read_safetensors(place)
    if not place.is_file():
        raise FileFormatError(f"{place}: there is no such file of weights")
    with place.open("rb") as file:
        return read_gguf(place) if file.read(len(MAGIC)) == MAGIC else read_safetensors(place)


def _within(folder: Path) -> Path:
    """The file in a folder that has its weights, or leads to them."""
    for patterns in (("*.safetensors" + INDEX_SUFFIX,), ("model.safetensors",), ("*.safetensors", "*.gguf")):
        found = sorted(file for pattern in patterns for file in folder.glob(pattern))
        whole = [file for file in found if "-of-" not in file.stem or "-00001-of-" in file.stem]
        if len(whole) == 1:
            return whole[0]
        if found:
            raise FileFormatError(
                f"{folder}: it is not clear which file has the weights",
                because=", ".join(file.name for file in found[:8]),
                remedy="name the file, or the index",
            )
    raise FileFormatError(f"{folder}: there are no weights in the folder", remedy="safetensors and GGUF files are read")
