"""The page of names runs, and every name that it promises is there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import abele as ab
from abele import poplar
from abele.poplar import Target, program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "poplar.md"
OWNERS = {
    "Types and small values": [poplar, poplar.OptionFlags, poplar.SourceLocation, ab.numerics.ElementType],
    "Devices and targets": [poplar, poplar.IPUModel, poplar.Device, poplar.DeviceManager, Target],
    "Graph": [poplar, poplar.Graph, poplar.DataStream, poplar.RemoteBuffer],
    "Tensor": [poplar, poplar.Tensor],
    "Programs": [poplar, program, ab.Sequence, program.Switch],
    "Engine": [poplar, poplar.Engine],
    "Exceptions": [poplar],
}
WORDS = {"braces", "begin", "end", "size", "type", "field"}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_page__program__runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    runpy.run_path(str(script))
    assert capsys.readouterr().out == "10.0\n"


@pytest.mark.parametrize("section", OWNERS)
def test_page__names_of_poplar__are_all_there(section: str) -> None:
    rows = re.findall(r"^\| (.+?) \|", sections()[section], flags=re.MULTILINE)
    quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    names = {re.split(r"[(<]", part.rsplit("::", 1)[-1].lstrip("."))[0] for q in quoted for part in q.split()}
    wanted = {n for n in names if re.fullmatch(r"[A-Za-z_]\w*", n) and len(n) > 2} - WORDS
    missing = sorted(n for n in wanted if not any(hasattr(owner, n) for owner in OWNERS[section]))
    assert not missing
