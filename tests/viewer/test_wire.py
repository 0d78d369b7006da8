"""Answers on the wire: what is packed is what is unpacked, in both forms."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from abele.arrays import Array
from abele.viewer.wire import Answer, pack, unpack

FLOATS = [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 2.0**53, 1e300, -1.0]


def arrays(seed: int) -> dict[str, Array]:
    """Arrays of each type, as views have them: random, growing, constant, empty, of one item, in rows."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {"odd": np.array(FLOATS), "odd32": np.array(FLOATS[:6], np.float32)}
    for name in ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8", "i8", "?"):
        most = {"u1": 256, "i1": 128, "?": 2}.get(name, int(rng.choice([2, 200, 40_000])) // 2)
        for form, shape in [("flat", int(rng.integers(0, 2000))), ("rows", (7, 5, 3)), ("one", 1), ("none", (0, 4))]:
            made[f"{name}_{form}"] = rng.integers(0, max(most, 1), shape).astype(name)
        made[f"{name}_grows"] = np.sort(rng.integers(0, max(most, 1), 999)).astype(name)
    made["times"] = np.cumsum(rng.integers(0, 2**34, 500)).astype(np.float64)
    made["parts"] = rng.random((64, 4)).astype(np.float32)
    made["below"] = rng.integers(-(2**31), 2**31, 300)
    return made


@pytest.mark.parametrize("seed", range(4))
def test_pack__dense_or_not__keeps_every_bit_type_and_shape(seed: int) -> None:
    answer = Answer({"name": "é\u2028", "arrays_of": 3}, arrays(seed))
    plain, dense = unpack(pack(answer)), unpack(pack(answer, is_dense=True))
    assert plain.head == dense.head == answer.head
    for name, array in plain.arrays.items():
        found = dense.arrays[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape) == (array.dtype, answer.arrays[name].shape)
        assert found.tobytes() == array.tobytes(), name
        given = answer.arrays[name]
        # The page has neither 64-bit integers nor bools.
        assert array.dtype == {"i8": "f8", "b1": "u1"}.get(given.dtype.str[1:], given.dtype)
        np.testing.assert_array_equal(array, given)


def listed(packed: bytes) -> dict[str, dict[str, Any]]:
    """Entry of each array in the head of an answer."""
    head = json.loads(packed[4 : 4 + int.from_bytes(packed[:4], "little")])
    return {entry["name"]: entry for entry in head["arrays"]}


@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.parametrize("name", ["a", "ab", "abcdefg"])
def test_pack__arrays_of_odd_lengths__begin_where_the_page_can_map_them(name: str, is_dense: bool) -> None:
    packed = pack(Answer({}, {name: np.arange(3, dtype="u1"), "next": np.arange(5, dtype="f8")}), is_dense=is_dense)
    begin = 4 + int.from_bytes(packed[:4], "little")
    assert begin % 8 == 0
    assert [entry["first"] % 8 for entry in listed(packed).values()] == [0, 0]


def test_pack__dense__holds_whole_numbers_in_the_least_type_that_has_them() -> None:
    values = {
        "uint8": np.array([0, 255]),
        "int8": np.array([-128, 127]),
        "uint16": np.array([0, 65535]),
        "int16": np.array([-32768, 5]),
        "float64": np.array([0.5, 1.0]),
    }
    found = listed(pack(Answer({}, values), is_dense=True))
    assert {name: entry.get("held", entry["type"]) for name, entry in found.items()} == {name: name for name in values}


def test_pack__dense__parts_the_bytes_of_numbers_that_lie_close() -> None:
    found = listed(pack(Answer({}, {"x": np.random.default_rng(0).random(999) + 1}), is_dense=True))
    assert found["x"]["planes"]


def test_pack__dense__is_smaller_where_values_are_small_or_grow_evenly() -> None:
    import zlib

    answer = Answer({}, {"start": np.arange(5_000, dtype=np.float64) * 40_000, "lane": np.arange(5_000) % 7})
    plain, dense = (len(zlib.compress(pack(answer, is_dense=is_dense))) for is_dense in (False, True))
    assert dense < plain / 10
