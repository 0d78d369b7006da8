"""``tf.io``: files, images and records."""

from __future__ import annotations

import glob
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from abele.errors import FileFormatError, MissingPackageError

from ..dtypes import as_dtype
from ..tensors import StringTensor, numpy_of, tensor_of


def path_of(path: Any) -> str:
    """A path as text: of a string, bytes, a path or a tensor."""
    found = path.numpy() if isinstance(path, StringTensor) else path
    return os.fsdecode(found)


class GFile:
    """A file by its path; text, or bytes with "b" in the mode.

    Args:
        name: The path.
        mode: As Python's ``open`` has it.
    """

    def __init__(self, name: Any, mode: str = "r") -> None:
        self._file: Any = open(path_of(name), mode)  # noqa: SIM115

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


def _copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    if not overwrite and os.path.exists(path_of(dst)):
        raise FileFormatError(f"{path_of(dst)} is there already", remedy="overwrite=True")
    shutil.copyfile(path_of(src), path_of(dst))


GFILE: dict[str, Any] = {
    "GFile": GFile,
    "exists": lambda path: os.path.exists(path_of(path)),
    "isdir": lambda path: os.path.isdir(path_of(path)),
    "glob": lambda pattern: sorted(glob.glob(path_of(pattern))),
    "listdir": lambda path: sorted(os.listdir(path_of(path))),
    "mkdir": lambda path: os.mkdir(path_of(path)),
    "makedirs": lambda path: os.makedirs(path_of(path), exist_ok=True),
    "remove": lambda path: os.remove(path_of(path)),
    "rmtree": lambda path: shutil.rmtree(path_of(path)),
    "copy": _copy,
    "rename": lambda src, dst, overwrite=False: os.replace(path_of(src), path_of(dst)),
    "stat": lambda path: os.stat(path_of(path)),
    "walk": lambda top, topdown=True, onerror=None: os.walk(path_of(top), topdown),
    "join": lambda path, *paths: os.path.join(path_of(path), *map(path_of, paths)),
}


def read_file(filename: Any, name: str | None = None) -> StringTensor:
    """The bytes of a file."""
    return StringTensor(Path(path_of(filename)).read_bytes())


def write_file(filename: Any, contents: Any, name: str | None = None) -> None:
    """Write bytes to a file."""
    Path(path_of(filename)).write_bytes(numpy_of(contents))


def decode_raw(input_bytes: Any, out_type: Any, little_endian: bool = True, name: str | None = None) -> Any:
    """Bytes as numbers."""
    kind = as_dtype(out_type).dtype.newbyteorder("<" if little_endian else ">")
    return tensor_of(np.frombuffer(numpy_of(input_bytes), kind).astype(kind.newbyteorder("=")))


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = "uint8",
    name: str | None = None,
    expand_animations: bool = True,
    **_: Any,
) -> Any:
    """An image file's bytes as a tensor: [rows, columns, channels].

    Raises:
        MissingPackageError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError("images are read by Pillow", remedy="pip install pillow") from error
    picture: Any = Image.open(io.BytesIO(numpy_of(contents)))
    modes = {1: "L", 3: "RGB", 4: "RGBA"}
    picture = picture.convert(
        modes[channels] if channels else picture.mode if picture.mode in modes.values() else "RGB"
    )
    pixels = np.asarray(picture)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    wanted = as_dtype(dtype)
    return tensor_of(pixels / np.float32(255) if wanted.is_floating else pixels, wanted)


def encode_image(image: Any, format: str, **options: Any) -> StringTensor:
    """The bytes of an image file of a tensor: [rows, columns, channels] of bytes."""
    from PIL import Image

    pixels, made = np.asarray(image), io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(made, format, **options)
    return StringTensor(made.getvalue())


def decode_csv(
    records: Any, record_defaults: list[Any], field_delim: str = ",", select_cols: Any = None, **_: Any
) -> list[Any]:
    """A line of text as tensors, one per column."""
    fields = numpy_of(records).decode().split(field_delim)
    chosen = fields if select_cols is None else [fields[column] for column in select_cols]
    found = []
    for text, default in zip(chosen, record_defaults, strict=True):
        first = np.ravel(numpy_of(default))[0] if np.size(default) else None
        kind = as_dtype(default) if first is None else as_dtype(np.asarray(first).dtype)
        if kind.name == "string":
            found.append(StringTensor(text or first or b""))
        else:
            found.append(jnp.asarray(kind.as_numpy_dtype(text) if text else first))
    return found


IO = {
    "read_file": read_file,
    "write_file": write_file,
    "decode_raw": decode_raw,
    "decode_image": decode_image,
    "decode_jpeg": decode_image,
    "decode_png": decode_image,
    "decode_bmp": decode_image,
    "decode_and_crop_jpeg": lambda contents, crop_window, channels=0, **_: decode_image(contents, channels)[
        crop_window[0] : crop_window[0] + crop_window[2], crop_window[1] : crop_window[1] + crop_window[3]
    ],
    "encode_png": lambda image, **_: encode_image(image, "PNG"),
    "encode_jpeg": lambda image, quality=95, **_: encode_image(image, "JPEG", quality=quality),
    "decode_csv": decode_csv,
    "matching_files": lambda pattern, name=None: StringTensor(np.array(GFILE["glob"](pattern), dtype=object)),
}
