"""The machine that tests model where layout on 1,472 tiles is not their subject: 16 IPUs of 64 tiles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from abele.machine import systems
from abele.session.settings import SYSTEM_VARIABLE

_DESCRIBED = Path(__file__).with_name("small.toml")
SMALL = systems.load(_DESCRIBED)


@pytest.fixture(autouse=True, scope="module")
def small_machine() -> Iterator[None]:
    """Programs that choose no machine are compiled for the small one, in child processes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SYSTEM_VARIABLE, str(_DESCRIBED))
        yield


@pytest.fixture
def whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that choose no machine are compiled for the one that users get."""
    monkeypatch.delenv(SYSTEM_VARIABLE, raising=False)
