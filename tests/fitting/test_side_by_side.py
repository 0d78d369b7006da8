"""Tasks in forks of a process."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from abele.fitting.side_by_side import side_by_side


class Ending:
    """Says which process collects it."""

    def __init__(self, log: Path) -> None:
        self.log, self.itself = log, self

    def __del__(self) -> None:
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_side_by_side__garbage_of_the_parent__is_not_collected_in_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abele.fitting.side_by_side.num_threads", lambda: 2)
    log = tmp_path / "log"
    gc.collect()
    gc.disable()
    try:
        Ending(log)
        made = side_by_side([lambda: (gc.collect(), os.getpid())[1]] * 4, lambda _: None)
        assert os.getpid() not in made
        assert not log.exists()
    finally:
        gc.enable()
    gc.collect()
    assert log.read_text() == f"{os.getpid()}\n"
