"""Recordings for tests: none outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abele import trace


@pytest.fixture(autouse=True)
def no_recording_left() -> Iterator[None]:
    assert not trace.is_recording()
    yield
    trace.stop()
