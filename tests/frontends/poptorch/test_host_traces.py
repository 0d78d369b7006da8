"""Events of wrapped models and profiling channels in traces of the host."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele import poptorch, trace
from abele.trace import Trace

pytestmark = pytest.mark.torch
X = torch.ones(4, 3)


@pytest.fixture(autouse=True)
def no_recording_left() -> Iterator[None]:
    assert not trace.is_recording()
    yield
    trace.stop()


def found(loaded: Trace, channel: str) -> list[tuple[str, int]]:
    return [(row["label"], row["depth"]) for row in loaded.rows() if row["channel"] == channel]


def test_model__compiled_and_called__is_an_event_each(tmp_path: Path) -> None:
    model = poptorch.inferenceModel(torch.nn.Linear(3, 2), poptorch.Options())
    loader = poptorch.DataLoader(poptorch.Options(), torch.utils.data.TensorDataset(X), batch_size=2)
    with trace.recording(tmp_path) as path:
        for (batch,) in loader:
            model(batch)
        model.copyWeightsToHost()
    loaded = Trace.load(path)
    assert found(loaded, "poptorch") == [
        ("wait for a batch", 0),
        ("call", 0),
        ("compile", 1),
        ("attach to device", 2),
        ("wait for a batch", 0),
        ("call", 0),
        ("wait for a batch", 0),
        ("copy weights to host", 0),
    ]
    assert [label for label, _ in found(loaded, "abele.run")].count("Engine.run") == 2
    # Compiling the program is part of compiling the model.
    rows = list(loaded.rows())
    (inner,) = (row for row in rows if row["label"] == "compile_program")
    above = []
    while inner["parent"] >= 0:
        inner = rows[inner["parent"]]
        above.append(inner["label"])
    assert above[-2:] == ["compile", "call"]


def test_channel__of_profiling__is_in_the_trace_and_in_the_report(tmp_path: Path) -> None:
    class Work:
        def run(self, x: int) -> int:
            return x + 1

    channel = poptorch.profiling.Channel("mine")
    work = Work()
    channel.instrument(work, "run")
    with trace.recording(tmp_path) as path, channel.tracepoint("all"):
        assert work.run(2) == 3
    with channel.tracepoint("after"):
        pass
    loaded = Trace.load(path)
    assert found(loaded, "mine") == [("all", 0), ("Work.run", 1)]
    spans = poptorch.profiling.tracepoints("mine")
    assert [span.name for span in spans] == ["Work.run", "all", "after"]
    for span, row in zip(spans[1::-1], loaded.rows(), strict=False):
        assert row["duration_ns"] / 1e9 == pytest.approx(span.seconds, abs=1e-3)


def test_enable_profiling__writes_a_trace_until_the_last_model_is_destroyed(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    opts = poptorch.Options().enableProfiling(folder)
    first = poptorch.inferenceModel(torch.nn.Linear(3, 2), opts)
    second = poptorch.inferenceModel(torch.nn.Linear(3, 2), opts)
    assert not trace.is_recording()
    first(X)
    second(X)
    loaded = Trace.load(folder)
    assert [label for label, depth in found(loaded, "poptorch") if depth == 0] == ["compile", "call"]
    assert sorted(p.suffix for p in folder.rglob("*.*")) == [".abele-report", ".abele-trace"]
    first.destroy()
    assert trace.is_recording()
    second(X)
    del second
    gc.collect()
    assert not trace.is_recording()
    loaded = loaded.reload()
    assert found(loaded, "poptorch").count(("call", 0)) == 2
    assert loaded.note == ""
    first(X)
    assert trace.is_recording(), "a model that is compiled anew begins anew"
    first.destroy()
    assert not trace.is_recording()


def test_enable_profiling__while_a_recording_is_on__leaves_it(tmp_path: Path) -> None:
    model = poptorch.inferenceModel(torch.nn.Linear(3, 2), poptorch.Options().enableProfiling(tmp_path / "profile"))
    with trace.recording(tmp_path / "own") as path:
        model(X)
        model.destroy()
        assert trace.is_recording()
    assert not list((tmp_path / "profile").glob("*.abele-trace"))
    assert ("call", 0) in found(Trace.load(path), "poptorch")


def test_enable_profiling__of_a_model_that_does_not_compile__leaves_no_recording(tmp_path: Path) -> None:
    class Bad(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    model = poptorch.inferenceModel(Bad(), poptorch.Options().enableProfiling(tmp_path))
    with pytest.raises(Exception, match="no"):
        model(X)
    assert not trace.is_recording()
