"""Safetensors beside the package ``safetensors``, and files and indices that lie."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save, save_file

from abele.errors import FileFormatError, TypeMismatchError
from abele.weights import open_weights, write_safetensors
from support.weight_files import safetensors_bytes

RNG = np.random.default_rng(3)
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


def test_open_weights__safetensors_of_every_type__as_pytorch_reads_them(tmp_path: Path) -> None:
    tensors = {kind: torch.from_numpy(RNG.standard_normal((3, 5)) * 3).to(dtype) for kind, dtype in TYPES.items()}
    tensors["scalar"], tensors["none"] = torch.tensor(2.5), torch.zeros(0, 4)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    file = open_weights(tmp_path)
    assert set(file) == set(tensors)
    assert file.metadata == {"format": "pt"}
    for name, tensor in tensors.items():
        assert file[name].kind == ("F32" if name in ("scalar", "none") else name)
        np.testing.assert_array_equal(file[name].read(), tensor.float().numpy())
    np.testing.assert_array_equal(file["I64"].read(np.int64), tensors["I64"].numpy())


@pytest.mark.parametrize(("name", "dtype"), [("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2)])
def test_open_weights__all_codes_of_8_bit_floats__as_pytorch(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    save_file({"w": codes}, tmp_path / "w.safetensors")
    np.testing.assert_array_equal(open_weights(tmp_path / "w.safetensors")["w"].read(), codes.float().numpy())


def _shards(folder: Path, **changes: Any) -> Path:
    for number in (1, 2):
        save_file(
            {f"w{number}": torch.full((2, 2), float(number))}, folder / f"model-0000{number}-of-00002.safetensors"
        )
    places = {f"w{number}": f"model-0000{number}-of-00002.safetensors" for number in (1, 2)} | changes
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 32}, "weight_map": {k: v for k, v in places.items() if v}}))
    return index


def test_open_weights__shards__one_mapping_from_index_or_folder(tmp_path: Path) -> None:
    index = _shards(tmp_path)
    assert open_weights(tmp_path).names == open_weights(index).names == ("w1", "w2")
    assert open_weights(tmp_path)["w2"].read().tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w3": "model-00003-of-00002.safetensors"}, "'model-00003-of-00002.safetensors' is missing"),
        ({"w1": "../model.safetensors"}, "outside its folder"),
        ({"w1": "/etc/passwd"}, "outside its folder"),
        ({"w1": "a\\..\\..\\b"}, "outside its folder"),
        ({"w1": "model-00002-of-00002.safetensors"}, "'w1' is not in model-00002-of-00002.safetensors"),
        ({"w1": 5}, "no 'weight_map' of file names"),
        ({"w1": None}, ""),
        ({"w2": "", "w9": "model-00002-of-00002.safetensors"}, "'w9' is not in"),
    ],
)
def test_open_weights__index_that_lies__is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    index = _shards(tmp_path, **changes)
    if not message:
        assert open_weights(index).names == ("w2",)
        return
    with pytest.raises(FileFormatError, match=r"index\.json") as refused:
        open_weights(index)
    assert message in str(refused.value)


def _one(**changes: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | changes}


TWICE = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
LIES = {
    "empty": (b"", "it is empty"),
    "short": (b"\1\0\0", "it has 3 B"),
    "length 2⁶³": (bytes(7) + b"\x80" + b"{}", "9,223,372,036,854,775,808 B"),
    "length past the end": (b"\x10" + bytes(7) + b"{}", "cut off"),
    "no JSON": (safetensors_bytes(b"{w"), "JSON cannot be read"),
    "deep": (safetensors_bytes(b"[" * 100_000), "nested too deep"),
    "long number": (safetensors_bytes(b'{"w":' + b"9" * 5000 + b"}"), "JSON cannot be read"),
    "UTF-8": (safetensors_bytes(b'{"\xff":1}'), "JSON cannot be read"),
    "list": (safetensors_bytes(b"[]"), "not an object"),
    "twice": (safetensors_bytes(TWICE, b"0"), "'w' appears twice"),
    "metadata": (safetensors_bytes({"__metadata__": {"a": 1}}), "metadata are not strings"),
    "entry": (safetensors_bytes({"w": 3}), "not told by dtype"),
    "extra": (safetensors_bytes(_one(more=1), bytes(16)), "not told by dtype"),
    "dtype": (safetensors_bytes(_one(dtype="F33"), bytes(16)), "type 'F33', which is not read"),
    "dtype of lists": (safetensors_bytes(_one(dtype=["F32"]), bytes(16)), "which is not read"),
    "negative": (safetensors_bytes(_one(shape=[-2, -2]), bytes(16)), "no shape"),
    "real": (safetensors_bytes(_one(shape=[2.0, 2]), bytes(16)), "no shape"),
    "truth": (safetensors_bytes(_one(shape=[True, 4]), bytes(16)), "no shape"),
    "rank": (safetensors_bytes(_one(shape=[1] * 33), bytes(16)), "no shape"),
    "overflow": (safetensors_bytes(_one(shape=[1 << 62, 1 << 62]), bytes(16)), "needs 85,"),
    "offsets": (safetensors_bytes(_one(data_offsets=[16, 0]), bytes(16)), "are -16 B"),
    "outside": (safetensors_bytes(_one(data_offsets=[1 << 62, (1 << 62) + 16]), bytes(16)), "outside the file"),
    "cut off": (safetensors_bytes(_one(), bytes(15)), "outside the file"),
    "overlap": (safetensors_bytes(_one() | {"v": _one(data_offsets=[8, 24])["w"]}, bytes(24)), "overlap"),
    "gap": (safetensors_bytes(_one(), bytes(17)), "belong to no tensor"),
}


@pytest.mark.parametrize("lie", LIES)
def test_open_weights__safetensors_that_lie__are_refused(lie: str, tmp_path: Path) -> None:
    content, message = LIES[lie]
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"m\.safetensors") as refused:
        open_weights(path)
    assert message in str(refused.value)


def test_open_weights__paths_that_lead_nowhere__are_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "no weights in the folder"), (tmp_path / "m.bin", "no such file")):
        with pytest.raises(FileFormatError, match=message):
            open_weights(path)
    for name in ("a.safetensors", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileFormatError, match="not clear which") as refused:
        open_weights(tmp_path)
    assert "a.safetensors, b.gguf" in str(refused.value)


WHOLE = save({"a": torch.ones(2, 3), "b": torch.zeros(5, dtype=torch.bfloat16)}, {"format": "pt"})


@given(
    flips=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.none() | st.integers(0, 300),
)
def test_open_weights__damaged_safetensors__reads_or_is_refused(
    flips: list[tuple[int, int]], cut: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(WHOLE[:cut])
    for place, value in flips:
        if content:
            content[place % len(content)] = value
    damaged = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    damaged.write_bytes(content)
    with suppress(FileFormatError):
        for tensor in open_weights(damaged).values():
            assert tensor.read(np.float64).shape == tensor.shape


def test_write_safetensors__arrays_of_every_type__as_the_package_reads_them(tmp_path: Path) -> None:
    kinds = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", ">f4")
    arrays = {f"größe.{kind}": (RNG.standard_normal((3, 4)) * 9).astype(kind) for kind in kinds}
    arrays |= {"scalar": np.array(2.5), "none": np.zeros((0, 4)), "turned": np.arange(6.0).reshape(2, 3).T}
    path = tmp_path / "a" / "w.safetensors"
    write_safetensors(path, arrays, {"format": "pt"})
    with safe_open(path, "numpy") as theirs:
        assert theirs.metadata() == {"format": "pt"}
        for name, array in arrays.items():
            np.testing.assert_array_equal(theirs.get_tensor(name), array)
            np.testing.assert_array_equal(open_weights(path)[name].read(array.dtype.newbyteorder("=")), array)
    with pytest.raises(TypeMismatchError, match="'z' of complex128"):
        write_safetensors(path, {"z": np.zeros(1, complex)})
    assert len(open_weights(path)) == len(arrays)
