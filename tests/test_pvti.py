"""libpvti's names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from abele import pvti, trace
from abele.errors import InvalidOptionError


def test_names__of_the_tutorial__record(tmp_path: Path) -> None:
    channel = pvti.createTraceChannel("Application")

    class Trainer:
        def loop(self) -> int:
            return 1

    @pvti.instrument_fn(channel)
    def train() -> None:
        with pvti.Tracepoint(channel, "step", {"n": 1}) as point:
            assert isinstance(point, pvti.Tracepoint)
        pvti.Tracepoint.begin(channel, "by hand")
        pvti.Tracepoint.begin(channel, "inside")
        pvti.Tracepoint.end(channel, "inside")
        pvti.Tracepoint.end(channel, "by hand")
        pvti.Tracepoint.event(channel, "epoch")

    trainer = Trainer()
    pvti.instrument(trainer, ["loop"], channel)
    pvti.instrument(Trainer, ["loop"])
    graph = pvti.createGraph("CPU load", "%")
    series = graph.addSeries("core 0")
    heat = pvti.HeatmapDouble("exponents", [-2.0, 0.0, 2.0])
    assert not pvti.checkTracingEnabled()
    with trace.recording(tmp_path) as path:
        assert pvti.checkTracingEnabled()
        assert pvti.checkTracingEnabled(channel)
        train()
        assert (trainer.loop(), Trainer().loop()) == (1, 1)
        series.add(12.5)
        heat.add([-1, 1, 1.5])
        with pytest.raises(InvalidOptionError, match="'step' on channel 'Application' ends without having begun"):
            pvti.Tracepoint.end(channel, "step")
    loaded = trace.Trace.load(path)
    found = [(row["channel"], row["label"].split(".")[-1], row["depth"]) for row in loaded.rows()]
    assert found == [
        ("Application", "train", 0),
        ("Application", "step", 1),
        ("Application", "by hand", 1),
        ("Application", "inside", 2),
        ("Application", "loop", 0),
        ("Trainer", "loop", 0),
    ]
    assert [row["label"] for row in loaded.rows("instants")] == ["epoch"]
    assert (loaded.series[0].graph, loaded.series[0].unit, loaded.series[0].values.tolist()) == (
        "CPU load",
        "%",
        [12.5],
    )
    assert loaded.heatmaps[0].counts.tolist() == [[1, 2]]


def test_names__while_nothing_is_recorded__do_nothing() -> None:
    channel = pvti.TraceChannel("off")
    with pvti.Tracepoint(channel, "x"):
        pvti.Tracepoint.begin(channel, "y")
        pvti.Tracepoint.end(channel, "y")
        pvti.Tracepoint.end(channel, "y")
    assert not pvti.checkTracingEnabled(channel)


def test_libpvti__installed_with_the_variable__records(tmp_path: Path) -> None:
    program = (
        "from abele import pvti as ours\n"
        "ours.install()\n"
        "import libpvti as pvti\n"
        "channel = pvti.createTraceChannel('c')\n"
        "with pvti.Tracepoint(channel, 'work'): pass\n"
    )
    options = f'{{"enable":"true","directory":"{tmp_path}","channels":["c"]}}'
    environment = {**os.environ, "PVTI_OPTIONS": options}
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=environment, check=True)
    assert [row["label"] for row in trace.Trace.load(tmp_path).rows()] == ["work"]
