"""Datasets of files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele.errors import AbeleError

SPECIFIED = bytes.fromhex("0a0f0a0d0a01781208 1a060a0401ac02 7f".replace(" ", ""))
"""An example of {"x": [1, 300, 127]}, written out by the rules of protocol buffers."""


def record(data: bytes) -> bytes:
    return struct.pack("<QI", len(data), 0) + data + bytes(4)


def test_text__of_several_files__is_read_by_line(tf: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text("one\r\ntwo\n")
    paths[1].write_text("three")
    lines = tf.data.TextLineDataset([str(path) for path in paths])
    assert list(lines.as_numpy_iterator()) == [b"one", b"two", b"three"]
    packed = tmp_path / "c.gz"
    packed.write_bytes(gzip.compress(b"four\n"))
    assert list(tf.data.TextLineDataset(str(packed), "GZIP").as_numpy_iterator()) == [b"four"]
    names = tf.data.Dataset.from_tensor_slices([str(path) for path in paths])
    assert len(list(names.interleave(tf.data.TextLineDataset, cycle_length=2))) == 3


def test_records__of_examples__are_parsed_and_batched(tf: Any, tmp_path: Path) -> None:
    def example(label: int) -> bytes:
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes([label, 0, 7, 0])])),
            "box": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, label])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[-label])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    path = tmp_path / "data.tfrecord"
    path.write_bytes(b"".join(record(example(label)) for label in range(5)))
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "box": tf.io.FixedLenFeature([2], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "weight": tf.io.FixedLenFeature([], tf.float32, default_value=1.0),
    }

    def parsed(serialized: Any) -> Any:
        found = tf.io.parse_single_example(serialized, features)
        return tf.io.decode_raw(found["image"], tf.uint8), found["box"], found["label"], found["weight"]

    dataset = tf.data.TFRecordDataset(str(path)).map(parsed).batch(5)
    assert dataset.element_spec[0] == tf.TensorSpec((None, 4), tf.uint8)
    image, box, label, weight = next(dataset.as_numpy_iterator())
    assert image.tolist() == [[label, 0, 7, 0] for label in range(5)]
    assert box[3].tolist() == [0.5, 3.0]
    assert label.tolist() == [0, -1, -2, -3, -4]
    assert weight.tolist() == [1.0] * 5
    batch = tf.io.parse_example([example(1), example(2)], {"box": features["box"]})
    assert batch["box"].numpy().tolist() == [[0.5, 1.0], [0.5, 2.0]]


def test_examples__of_the_wire__are_read_and_written_alike(tf: Any) -> None:
    read = tf.train.Example.FromString(SPECIFIED)
    assert read.features.feature["x"].int64_list.value == [1, 300, 127]
    assert read.SerializeToString() == SPECIFIED


def test_records__damaged_or_of_other_form__are_refused(tf: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.tfrecord"
    path.write_bytes(record(b"abc")[:-2])
    with pytest.raises(AbeleError, match="ends inside a record"):
        list(tf.data.TFRecordDataset(str(path)))
    box = {"box": tf.io.FixedLenFeature([2], tf.float32)}
    with pytest.raises(AbeleError, match="no box"):
        tf.io.parse_single_example(SPECIFIED, box)
    with pytest.raises(AbeleError, match="3 values"):
        tf.io.parse_single_example(SPECIFIED, {"x": tf.io.FixedLenFeature([2], tf.int64)})
    with pytest.raises(AbeleError, match=r"no tf\.train\.Example"):
        tf.io.parse_single_example(b"\x0a\xff\xff", box)
    assert np.ndim(tf.io.parse_single_example(SPECIFIED, {"x": tf.io.FixedLenFeature([3], tf.int64)})["x"]) == 1
