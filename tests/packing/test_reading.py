"""Files of lengths: the forms that there are, and hostile ones."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from abele.errors import AbeleError, FileFormatError, ItemSizeError, PackingError
from abele.packing import read_lengths

WANTED = ([5, 7, 12], [2, 1, 3])


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("5\n12\n12\n7\n5\n12\n", None),
        ("length\n5\n12\n12\n7\n5\n12\n", None),
        ("\ufefflen\r\n5\r\n12\r\n12\r\n\r\n7\r\n5\r\n12", None),
        ("5,2\n7,1\n12,3\n", None),
        ("length;count\n12;3\n5;2\n7;1\n9;0\n", None),
        ("length,a,b\n5,0,2\n7,4,1\n12,9,3\n13,7,\n", "b"),
        ('id\tlen\n"a"\t5\nb\t12\nc\t12\nd\t7\ne\t5\nf\t12\n', "len"),
        ("id,tokens\n1,5\n2,12\n3,12\n4,7\n5,5\n6,12\n", "tokens"),
        ("length,score\n5,0.5\n12,1\n12,1\n7,1\n5,nan\n12,1\n", "length"),
    ],
)
def test_read__each_form__is_the_same_histogram(text: str, column: str | None, tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text(text, encoding="utf-8")
    found = read_lengths(path, column=column)
    assert (found.lengths.tolist(), found.counts.tolist()) == WANTED


def test_read__path_or_stream_of_text__is_the_same_histogram(tmp_path: Path) -> None:
    text = "5\n12\n12\n7\n5\n12\n"
    path = tmp_path / "lengths.txt"
    path.write_text(text, encoding="utf-8")
    for source in (str(path), io.StringIO(text)):
        found = read_lengths(source)
        assert (found.lengths.tolist(), found.counts.tolist()) == WANTED


def test_read__array__is_the_same_histogram(tmp_path: Path) -> None:
    np.save(tmp_path / "lengths.npy", np.array([5, 12, 12, 7, 5, 12], np.uint16))
    found = read_lengths(tmp_path / "lengths.npy")
    assert (found.lengths.tolist(), found.counts.tolist()) == WANTED


def array(values: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(values), allow_pickle=True)
    return stream.getvalue()


HEADER = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999,), }".ljust(
    118
)


@pytest.mark.parametrize(
    ("data", "column", "error", "text"),
    [
        (b"", None, PackingError, "the file is empty"),
        (b"\n\n", None, PackingError, "there are no lengths"),
        (b"length\n", None, PackingError, "no items"),
        (b"0\n5\n", None, ItemSizeError, "item 0 has size 0"),
        (b"5\n-3\n", None, ItemSizeError, "item 1 has size -3"),
        (b"5.5\n", None, PackingError, "line 1 has '5.5'"),
        (b"5\nnan\n", None, PackingError, "line 2 has 'nan'"),
        (b"length\n7\nx\x1b[2J\n", None, PackingError, "line 3 has 'x\N{REPLACEMENT CHARACTER}[2J'"),
        (b"99999999999999999999999\n", None, PackingError, "line 1 has '99999999999999999999999'"),
        (b"5\n" + b"9" * 10**6, None, PackingError, "line 2"),
        (b"9" * 10**6, None, PackingError, "line 1"),
        (b"5,9223372036854775807\n6,9223372036854775807\n", None, PackingError, "more than the"),
        (b"5,99999999999999999999\n", None, PackingError, "line 1 has '99999999999999999999'"),
        (b"5,-2\n", None, PackingError, "a count is negative: -2 items of size 5"),
        (b"5,2\n7\n", None, PackingError, "line 2 has 1 column"),
        (b"a,b,c\n1,2,3\n", None, PackingError, "a table of 3 columns"),
        (b"id,n\n1,2\n", None, PackingError, "--column with the name of one: id, n"),
        (b"length,wikipedia\n1,2\n", "wikipdia", PackingError, "did you mean 'wikipedia'?"),
        (b"1,2\n", "n", PackingError, "no names"),
        (bytes(range(256)), None, FileFormatError, "neither text nor a NumPy array"),
        (b"5\x007\n", None, FileFormatError, "neither text nor a NumPy array"),
        (b"\x93NUMPY\x01", None, FileFormatError, "a damaged NumPy array"),
        (HEADER + b"\0" * 64, None, FileFormatError, "a damaged NumPy array"),
        (array([1.0, np.nan]), None, ItemSizeError, "entry 1 is nan"),
        (array([[1, 2]]), None, PackingError, "an array of shape [1, 2]"),
        (array([{}, 3]), None, FileFormatError, "a damaged NumPy array"),
        (array(["5"]), None, ItemSizeError, "whole numbers"),
    ],
)
def test_read__hostile_bytes__are_told_of(data: bytes, column: str | None, error: type[AbeleError], text: str) -> None:
    with pytest.raises(error) as raised:
        read_lengths(io.BytesIO(data), column=column, name="standard input")
    assert text in str(raised.value)
    assert "standard input" in str(raised.value)


def test_read__no_such_file__is_told_of(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot be read: No such file"):
        read_lengths(tmp_path / "lengths.csv")
    with pytest.raises(FileFormatError, match="cannot be read: Is a directory"):
        read_lengths(tmp_path)
