"""``abele report --sparse``: sparse operands of a report file as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from report.test_sparse import with_sparse


@pytest.mark.parametrize("options", [[], ["--json"], ["--top", "1"]])
def test_sparse__report_file__is_printed(abele: Callable[..., Any], tmp_path: Path, options: list[str]) -> None:
    report = with_sparse()
    report.save(tmp_path / "r.abele-report")
    result = abele("report", str(tmp_path / "r.abele-report"), "--sparse", *options)
    assert result.status == 0
    if "--json" in options:
        assert json.loads(result.out) == json.loads(json.dumps(report.sparse.to_json()))
    else:
        assert "layer/w" in result.out
        assert ("and 1 more" in result.out) == bool(options)
