"""GGUF files beside the package ``gguf``, and files that lie."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import ElementRangeError, FileFormatError, TypeMismatchError, UnknownArrayError
from abele.weights import open_weights
from abele.weights.kinds import BLOCKS, StoredKind
from support.weight_files import gguf_bytes, string, told, write_gguf

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_block_kinds__any_bytes__as_gguf_reads_them(kind: StoredKind) -> None:
    blocks = RNG.integers(0, 256, (37, kind.block_bytes), np.uint8).view(kind.block)[:, 0]
    for name in {"scale", "offset"} & set(kind.block.names or ()):
        blocks[name] = RNG.standard_normal(37)
    want = gguf.quants.dequantize(blocks.view(np.uint8).reshape(37, -1), gguf.GGMLQuantizationType[kind.name])
    np.testing.assert_array_equal(kind.decode(blocks), want)


def test_open_weights__gguf_of_every_sort__names_shapes_numbers_and_metadata(tmp_path: Path) -> None:
    kinds = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
    arrays = {f"t.{kind}": (RNG.standard_normal((6, 64)).astype(np.float32), kind) for kind in kinds}
    meta = {"llama.block_count": 3, "a.bool": True, "a.real": 0.5, "a.text": "größer", "a.list": ["x", "", "yü"]}
    path = write_gguf(tmp_path / "m.gguf", arrays, {**meta, "a.ids": [3, 1, 2], "a.floats": [0.5, -1.0]})
    file = open_weights(path)
    assert file.names == tuple(arrays)
    assert file.format == "gguf"
    assert {key: file.metadata[key] for key in meta} == {**meta, "a.list": ("x", "", "yü")}
    np.testing.assert_array_equal(file.metadata["a.ids"], [3, 1, 2])
    for tensor in gguf.GGUFReader(path).tensors:
        ours, kind = file[tensor.name], tensor.tensor_type
        assert (ours.shape, ours.kind, ours.offset) == ((6, 64), kind.name, tensor.data_offset)
        want = gguf.quants.dequantize(tensor.data, kind)
        np.testing.assert_array_equal(ours.read(), want)
        np.testing.assert_array_equal(ours.read(np.float16), want.astype(np.float16))
        assert not ours.blocks.flags.writeable
        assert ours.read().flags.writeable
        if (matrix := ours.quantised()) is not None:
            np.testing.assert_array_equal(matrix.dequantised(), want)
    assert [name for name in file if file[name].quantised()] == ["t.Q8_0", "t.Q4_0", "t.Q4_1"]
    assert open_weights(tmp_path).names == file.names
    with pytest.raises(UnknownArrayError, match=r"no tensor 't.Q4_2'") as told_of:
        file["t.Q4_2"]
    assert "t.Q4_" in (told_of.value.remedy or "")
    with pytest.raises(TypeMismatchError, match="cannot be read as int32"):
        file["t.F32"].read(np.int32)


def test_read__f32_beyond_f16__is_refused(tmp_path: Path) -> None:
    file = open_weights(write_gguf(tmp_path / "m.gguf", {"w": (np.full((1, 32), 7e4), "F32")}))
    with pytest.raises(ElementRangeError, match="'w' has numbers that overflow float16"):
        file["w"].read(np.float16)


def test_open_weights__split_model__one_mapping(tmp_path: Path) -> None:
    arrays = {f"w{i}": (RNG.standard_normal((2, 32)), "F32") for i in range(4)}
    for number, names in enumerate((["w0", "w1"], ["w2", "w3"]), 1):
        path = tmp_path / f"m-{number:05d}-of-00002.gguf"
        write_gguf(path, {name: arrays[name] for name in names}, {"split.no": number - 1, "split.count": 2})
    assert open_weights(tmp_path).names == ("w0", "w1", "w2", "w3")
    with pytest.raises(FileFormatError, match="one of 2 parts"):
        open_weights(tmp_path / "m-00002-of-00002.gguf")
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(FileFormatError, match=r"'m-00002-of-00002.gguf' is missing"):
        open_weights(tmp_path)


HUGE = 1 << 63
ENTRY = string(b"k") + struct.pack("<IB", 0, 1)
NESTED = struct.pack("<IQ", 9, 1) * 40
LIES = {
    "empty": (b"", "cannot be read"),
    "magic": (b"GGML" + bytes(60), "not a GGUF file"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not read"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "cut off": (b"GGUF" + struct.pack("<IQ", 3, 0), "cut off"),
    "tensors": (gguf_bytes(counts=(HUGE, 0)), "9,223,372,036,854,775,808 tensors cannot be in the file"),
    "entries": (gguf_bytes(counts=(0, HUGE)), "metadata entries cannot be in the file"),
    "name's length": (
        gguf_bytes(entries=[struct.pack("<Q", HUGE)], counts=(0, 1), data=bytes(64)),
        "bytes of a metadata",
    ),
    "array of strings": (gguf_bytes(entries=[string(b"k") + struct.pack("<IIQ", 9, 8, HUGE)]), "values of 'k' cannot"),
    "strings that lie": (
        gguf_bytes(entries=[string(b"k") + struct.pack("<IIQQ", 9, 8, 2, 1 << 40) + bytes(64)]),
        "bytes of the value of 'k' cannot",
    ),
    "array of numbers": (
        gguf_bytes(entries=[string(b"k") + struct.pack("<IIQ", 9, 12, HUGE)]),
        "numbers of 'k' cannot",
    ),
    "nested": (gguf_bytes(entries=[string(b"k") + struct.pack("<I", 9) + NESTED]), "nests arrays deeper"),
    "type": (gguf_bytes(entries=[string(b"k") + struct.pack("<IQ", 77, 0)]), "unknown type 77"),
    "truth": (gguf_bytes(entries=[string(b"k") + struct.pack("<IB", 7, 2)]), "neither true nor false"),
    "UTF-8": (gguf_bytes(entries=[string(b"\xff\xfe") + struct.pack("<IB", 0, 1)]), "a metadata name is not UTF-8"),
    "same entries": (gguf_bytes(entries=[ENTRY, ENTRY]), "two metadata entries 'k'"),
    "same tensors": (gguf_bytes(tensors=[told(), told(offset=128)], data=bytes(256)), "two tensors 'w'"),
    "overlap": (gguf_bytes(tensors=[told(), told(b"v", offset=96)], data=bytes(256)), "'w' and 'v' overlap"),
    "outside": (gguf_bytes(tensors=[told(offset=1 << 62)], data=bytes(128)), "'w' lies outside the file"),
    "no data": (gguf_bytes(tensors=[told()], data=bytes(127)), "'w' lies outside the file"),
    "misaligned": (gguf_bytes(tensors=[told(offset=4)], data=bytes(256)), "no multiple of 32"),
    "rank": (gguf_bytes(tensors=[told(sizes=(1,) * 5)], data=bytes(256)), "has 5 dimensions"),
    "rank 2³¹": (
        gguf_bytes(tensors=[string(b"w") + struct.pack("<I", 1 << 31) + bytes(24)]),
        "2,147,483,648 dimensions",
    ),
    "huge sizes": (gguf_bytes(tensors=[told(sizes=(1 << 40, 1 << 40))], data=bytes(256)), "too many numbers"),
    "odd rows": (gguf_bytes(tensors=[told(sizes=(48, 2), kind=2)], data=bytes(256)), "no whole blocks"),
    "known kind": (gguf_bytes(tensors=[told(kind=10)], data=bytes(256)), "kind Q2_K, which is not read"),
    "unknown kind": (gguf_bytes(tensors=[told(kind=99)], data=bytes(256)), "kind number 99"),
    "alignment 0": (gguf_bytes(entries=[string(b"general.alignment") + struct.pack("<II", 4, 0)]), "alignment of 0"),
    "alignment 48": (gguf_bytes(entries=[string(b"general.alignment") + struct.pack("<II", 4, 48)]), "alignment of 48"),
}


@pytest.mark.parametrize("lie", LIES)
def test_open_weights__gguf_that_lies__is_refused_without_making_anything(lie: str, tmp_path: Path) -> None:
    content, message = LIES[lie]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match=r"m\.gguf") as refused:
            open_weights(path)
        assert message in str(refused.value)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(
    flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.none() | st.integers(0, 2000),
)
def test_open_weights__damaged_gguf__reads_or_is_refused(
    flips: list[tuple[int, int]], cut: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "whole.gguf"
    if not whole.exists():
        tensors = {"w": (np.ones((4, 64)), "Q4_1"), "v": (np.ones((2, 8)), "F32")}
        write_gguf(whole, tensors, {"a": ["x", "yz"], "b": 1, "c": True, "d": [1, 2]})
    content = bytearray(whole.read_bytes()[:cut])
    for place, value in flips:
        if content:
            content[place % len(content)] = value
    damaged = folder / "damaged.gguf"
    damaged.write_bytes(content)
    with suppress(FileFormatError):
        for tensor in open_weights(damaged).values():
            assert tensor.read().shape == tensor.shape
