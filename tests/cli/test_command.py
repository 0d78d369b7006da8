"""The command's parts that need no model: systems, report, version, and how errors leave it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as package
from abele.errors import EngineError
from abele.machine import systems
from abele.report import LIVENESS, OPS, STEPS, VARIABLES, Memory, Report
from abele.report.file import program_tiles_of

Run = Callable[..., Any]


def test_version__asked__prints_it(abele: Run) -> None:
    assert abele("--version").out == f"abele {package.__version__}\n"


def test_module__run_by_python__is_the_command() -> None:
    found = subprocess.run([sys.executable, "-m", "abele", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout == f"abele {package.__version__}\n"


def test_help__asked__imports_neither_torch_nor_llvm() -> None:
    code = (
        "import sys; sys.argv = ['abele', '--help']\n"
        "from abele.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'llvmlite', 'sklearn'} & set(sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "systems" in finished.stdout


def test_systems__plain__lists_every_preset(abele: Run) -> None:
    finished = abele("systems")
    assert finished.status == 0
    for name in systems.names():
        assert name in finished.out


def test_systems__json__is_a_list_of_figures(abele: Run) -> None:
    rows = json.loads(abele("systems", "--json").out)["systems"]
    assert [row["name"] for row in rows] == list(systems.names())
    assert rows[0]["confidence"]["S"] > 50


def test_systems__one__lists_constants_with_sources_and_works(abele: Run) -> None:
    finished = abele("systems", "bow-2000")
    assert "ipu.exchange.bytes_per_cycle" in finished.out
    assert "Graphcore PopLibs" in finished.out
    data = json.loads(abele("systems", "bow-2000", "--json").out)
    assert {"path", "value", "unit", "source", "meaning"} == set(data["constants"][0])


def test_systems__typo__names_the_nearest_and_exits_2(abele: Run) -> None:
    finished = abele("systems", "bow-200")
    assert finished.status == 2
    assert finished.err.startswith(
        "abele: MachineError: no system is called 'bow-200'\n  try      did you mean 'bow-2000'?"
    )
    assert "Traceback" not in finished.err


@pytest.fixture
def report_file(tmp_path: Path) -> Path:
    report = Report(
        target=systems.bow().figures(),
        graph={"num_variables": 1},
        steps=STEPS.table(name=["step"], kind="compute", op=[0], cycles=[100], compute_cycles=[100]),
        ops=OPS.table(
            name=["add"], kind="popops.map", file="model.py", line=7, cycles=[100], compute_cycles=[100], share=1.0
        ),
        memory=Memory.of(4, 1000, variables=10),
        variables=VARIABLES.empty(),
        liveness=LIVENESS.empty(),
        program_tiles=program_tiles_of(np.full(4, 50)),
        meta={"name": "one addition"},
    )
    report.save(tmp_path / "one.abele-report")
    return tmp_path / "one.abele-report"


def test_report__file__is_printed(abele: Run, report_file: Path) -> None:
    finished = abele("report", str(report_file))
    for part in ("one addition", "model.py:7", "tile balance", "50%"):
        assert part in finished.out


def test_report__json__is_the_documented_object(abele: Run, report_file: Path) -> None:
    data = json.loads(abele("report", str(report_file), "--json").out)
    assert data == json.loads(json.dumps(Report.load(report_file).to_json()))


def test_report__damaged_file__says_so_and_exits_2(abele: Run, report_file: Path) -> None:
    report_file.write_bytes(report_file.read_bytes()[:-50])
    finished = abele("report", str(report_file))
    assert (finished.status, finished.out) == (2, "")
    assert "damaged or cut short" in finished.err


def test_demo__unknown_system__is_refused_before_loading_anything(abele: Run) -> None:
    finished = abele("demo", "digits", "--system", "bow2000")
    assert finished.status == 2
    assert "did you mean 'bow-2000'?" in finished.err


@pytest.mark.parametrize("option", ["--threads", "--epochs"])
def test_demo__count_below_one__names_it(abele: Run, option: str) -> None:
    finished = abele("demo", "digits", option, "0")
    assert finished.status == 2
    assert f"{option[2:]} = 0: must be at least 1" in finished.err


def test_demo__torch_missing__says_what_to_run(abele: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    finished = abele("demo", "digits")
    assert finished.status == 2
    assert "needs torch and sklearn, which are not installed" in finished.err
    assert "pip install 'abele[demo]'" in finished.err


def test_main__run_failure__exits_1(abele: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> Report:
        raise EngineError("the run was stopped")

    monkeypatch.setattr(Report, "load", staticmethod(fail))
    finished = abele("report", "x")
    assert (finished.status, finished.err) == (1, "abele: EngineError: the run was stopped\n")


def test_main__ctrl_c__exits_130(abele: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "load", staticmethod(interrupt))
    assert abele("report", "x").status == 130


def test_report__plot__is_written_in_the_format_of_its_ending(abele: Run, report_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    finished = abele("report", str(report_file), "--plot", str(tmp_path / "m.svg"), "--kind", "memory")
    assert (finished.status, finished.out) == (0, "")
    assert f"written: {tmp_path / 'm.svg'}" in finished.err
    assert "memory by tile" in (tmp_path / "m.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--plot", "a.xyz"), "InvalidOptionError: a.xyz: the ending '.xyz' is no format of pictures"),
        (("--plot", "none/a.png"), "FileFormatError: none/a.png: cannot be written"),
        (("--plot", "a.png", "--kind", "tile"), "did you mean 'tiles'?"),
    ],
)
def test_report__plot_that_cannot_be__says_why(
    abele: Run, report_file: Path, arguments: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    finished = abele("report", str(report_file), *arguments)
    assert finished.status == 2
    assert message in finished.err


def test_hosts__plain_and_json__list_presets_and_constants(abele: Run) -> None:
    assert "epyc-7742" in abele("hosts").out
    assert "run_call_seconds" in abele("hosts", "epyc-7742").out
    found = json.loads(abele("hosts", "epyc-7742", "--json").out)
    assert {row["path"]: row["value"] for row in found["constants"]}["num_cores"] == 128
    assert [host["name"] for host in json.loads(abele("hosts", "--json").out)["hosts"]] == ["epyc-7742"]


def test_report__loading__says_what_limits(abele: Run, report_file: Path, tmp_path: Path) -> None:
    fed = tmp_path / "fed.abele-report"
    Report.load(report_file).with_meta(samples_per_run=128).save(fed)
    told = tmp_path / "loading.toml"
    told.write_text(
        "batches_per_epoch = 100\nsample_seconds = 3e-5\nsample_bytes = 484\ntensors_per_batch = 1\nnum_workers = 8\n"
        '[host]\nname = "desk"\ntitle = "a desk"\nnum_cores = 8\nmemory_bytes_per_second = 5e10\n'
    )
    found = json.loads(abele("report", str(fed), "--loading", str(told), "--json").out)["limits"]
    assert found["limit"] == "loader"
    assert found["loading"]["samples_per_batch"] == 128
    assert found["loading"]["host"]["name"] == "desk"
    assert "limited by" in abele("report", str(fed), "--loading", str(told)).out
    told.write_text("num_workers = 8\n")
    finished = abele("report", str(fed), "--loading", str(told))
    assert finished.status == 2
    assert "Loading needs batches_per_epoch, sample_seconds" in finished.err
