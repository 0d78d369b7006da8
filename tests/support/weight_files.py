"""Small files of weights that tests write: with the packages of the formats, or byte by byte to be wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from abele.arrays import Array


def write_gguf(path: Path, tensors: Mapping[str, tuple[Array, str]], metadata: Mapping[str, Any] | None = None) -> Path:
    """A file of tensors [rows, columns] with the kind to store each in, written by the package ``gguf``."""
    entries = dict(metadata or {})
    writer = gguf.GGUFWriter(str(path), entries.pop("general.architecture", "llama"))
    for name, value in entries.items():
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, list(value))
    for name, (array, kind) in tensors.items():
        number = gguf.GGMLQuantizationType[kind]
        if kind in ("F32", "F16"):
            writer.add_tensor(name, array.astype(np.float32 if kind == "F32" else np.float16))
        else:
            writer.add_tensor(name, gguf.quants.quantize(array.astype(np.float32), number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def string(text: bytes) -> bytes:
    """A string of GGUF."""
    return struct.pack("<Q", len(text)) + text


def told(name: bytes = b"w", sizes: Sequence[int] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    """A tensor as a GGUF header tells of it."""
    return string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def gguf_bytes(
    *,
    tensors: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
    data: bytes = b"",
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A GGUF file of version 3 of parts that need not be right."""
    counts = counts or (len(tensors), len(entries))
    head = b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join(entries) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data


def safetensors_bytes(header: Any, data: bytes = b"") -> bytes:
    """A safetensors file of a header that need not be right: bytes as they are, anything else as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data
