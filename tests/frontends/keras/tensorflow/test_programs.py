"""Programs that say ``import tensorflow as tf``: those of the slides, and others as people write them.

One test puts a strategy without a device in the place of the IPU's, so that stock Keras trains; one trains on the
modelled machine. Plain runs have a short program, in ``test_importing.py``.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import abele.keras
from abele.frontends.keras.tensorflow.keras_names import datasets
from support import sweeps

PROGRAMS = Path(__file__).parent / "programs"
IPU = "abele.frontends.keras.ipu"
ARGUMENTS = {
    "slide_gpu": [],
    "slide_ipu": [],
    "encoder_decoder": ["--epochs", "2"],
    "mnist_fit": ["--samples", "256", "--epochs", "2"],
    "imdb_embedding": [],
    "pipelined": [],
    "infeed_outfeed": [],
}
SMALL = {"IMAGES": "128", "EPOCHS": "1", datasets.VARIABLE: datasets.MADE_UP, "JAX_PLATFORMS": "cpu"}


class Strategy:
    """A strategy that leaves models as they are."""

    def scope(self) -> Any:
        return contextlib.nullcontext(self)

    def run(self, fn: Any, args: Any = ()) -> Any:
        return fn(*args)


class Outfeed:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def enqueue(self, value: Any) -> None:
        self.values.append(value)

    def dequeue(self) -> Any:
        return np.stack(self.values)


def stand_in() -> ModuleType:
    """Modules of IPUs that do nothing."""
    ipu = ModuleType(IPU)
    config = SimpleNamespace(IPUConfig=lambda: SimpleNamespace(configure_ipu_system=lambda: None))
    schedule = SimpleNamespace(PipelineSchedule=SimpleNamespace(Grouped=0))
    ipu.__dict__.update(
        config=config,
        ipu_strategy=SimpleNamespace(IPUStrategy=Strategy),
        ipu_outfeed_queue=SimpleNamespace(IPUOutfeedQueue=Outfeed),
        ops=SimpleNamespace(pipelining_ops=schedule),
        PipelineStage=lambda stage: contextlib.nullcontext(),
    )
    return ipu


@pytest.fixture
def without_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TensorFlow's names installed, IPUs without a device, small data."""
    tf = abele.keras.tensorflow
    for module in (tf.keras, tf.python):
        monkeypatch.setitem(module.__dict__, "ipu", stand_in())
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(keras.Model, "set_pipelining_options", lambda *_, **__: None, raising=False)
    monkeypatch.setattr(keras.Model, "print_pipeline_stage_assignment_summary", lambda *_, **__: None, raising=False)
    abele.keras.install()
    yield
    abele.keras.uninstall()


def run(name: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *ARGUMENTS[name]])
    keras.utils.set_random_seed(1)
    return runpy.run_path(str(PROGRAMS / f"{name}.py"))["losses"]


@pytest.mark.filterwarnings("ignore:Do not pass an `input_shape`:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", sweeps.sampled(list(ARGUMENTS), 5))
def test_program__in_the_place_of_tensorflow__trains(
    name: str, without_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = run(name, monkeypatch)
    assert np.isfinite(losses).all()
    if len(losses) > 1:
        assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name != "slide_gpu"])
def test_program__on_the_modelled_machine__trains(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "abele.keras", str(PROGRAMS / f"{name}.py"), *ARGUMENTS[name]]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **SMALL}, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
