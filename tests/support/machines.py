"""The machine that tests model where layout on 1,472 tiles is not their subject: 16 IPUs of 64 tiles.

Rooms take both fixtures into their conftest. A test about the whole machine, or a module by its ``pytestmark``, says
``@pytest.mark.usefixtures("whole_machine")``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from abele.session.settings import SYSTEM_VARIABLE

_DESCRIBED = Path(__file__).with_name("small.toml")


@pytest.fixture(autouse=True, scope="module")
def small_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Programs that choose no machine are compiled for the small one, in child processes too."""
    asked = {name for mark in request.node.iter_markers("usefixtures") for name in mark.args}
    with pytest.MonkeyPatch.context() as patch:
        if "whole_machine" not in asked:
            patch.setenv(SYSTEM_VARIABLE, str(_DESCRIBED))
        yield


@pytest.fixture
def whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs without a choice of machine are compiled for the one that users get."""
    monkeypatch.delenv(SYSTEM_VARIABLE, raising=False)
