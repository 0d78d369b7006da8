"""Bytes that the library's vertices keep for themselves."""

from __future__ import annotations

import numpy as np
import pytest

from abele.numerics import f16, f32
from abele.poplibs.poplin.vertices import records
from abele.poplibs.poplin.vertices.method import Method
from abele.poplibs.poplin.vertices.work import Work


def work(in_channels: int = 16, out_channels: int = 16, groups: int = 1, kernel: int = 1, rows: int = 1) -> Work:
    """A slice with ``rows`` rows of six outputs."""
    sizes = (groups, in_channels, out_channels, 6 * rows, 6 * rows, 6, kernel, kernel)
    return Work(f16, f32, *(np.array([n], np.int64) for n in sizes))


@pytest.mark.parametrize(
    ("slice_", "pointers"),
    [
        (work(), 3),
        (work(in_channels=64), 4 + 4 + 1),
        (work(64, 32, 2), 2 * (4 + 8 + 2)),
        (work(20, 17), 2 + 4 + 2),
    ],
)
def test_amp_1x1__groups_of_channels__have_a_pointer_each(slice_: Work, pointers: int) -> None:
    # Three lists, a pointer to the lists of work and 36 bytes of these, six 16-bit numbers and a stride.
    alone = 3 * 4 + 4 + 36 + 6 * 2 + 4
    assert records.amp_1x1(slice_, 4).tolist() == [alone + 4 * pointers]


def test_amp_1x1__short_pointers__take_half() -> None:
    slice_ = work(in_channels=64, out_channels=32)
    assert records.amp_1x1(slice_, 4) - records.amp_1x1(slice_, 2) == 2 * (4 + 8 + 2)


def test_amp_nx1__kernel_positions__have_lists_for_every_worker() -> None:
    of = {k: int(records.amp_nx1(work(kernel=k), 1, 4)[0]) for k in (1, 3, 5)}
    assert of[3] - of[1] == (9 - 1) * 6 * (4 + 6)
    assert of[5] - of[3] == (25 - 9) * 6 * (4 + 6)


def test_amp_nx1__rows_of_one_worker__are_items_of_its_lists() -> None:
    few, many = (int(records.amp_nx1(work(kernel=3, rows=n), 1, 4)[0]) for n in (6, 24))
    assert many - few == 9 * 6 * 3 * 6


def test_amp_nx1__kernel_rows_that_share_weights__share_lists() -> None:
    assert records.amp_nx1(work(kernel=4), 4, 4) < records.amp_nx1(work(kernel=4), 1, 4)


@pytest.mark.parametrize("kind", ["amp_1x1", "amp_nx1", "slic", "vmac", "hmac", "outer_product"])
def test_method__every_kind__has_a_record(kind: str) -> None:
    found = Method(kind).state_bytes(work(), 4)
    assert found.shape == (1,)
    assert found[0] > 0
    assert found[0] % 4 == 0
