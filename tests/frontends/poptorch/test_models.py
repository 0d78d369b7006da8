"""Networks that people bring, those of ``benchmarks/models.py``: they compile, and train as PyTorch does.

The networks written out in plain PyTorch train here; those of packages that may be missing are only recorded.
"""

import copy
import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")
# Not for longer than it takes: the benchmarks have modules of the names of test folders.
sys.path.append(BENCHMARKS)
from model_zoo import MODELS
from models import Marked, abele_contestant, difference, learning_rate, loop_contestant, noise

sys.path.remove(BENCHMARKS)

from abele.frontends.poptorch.capture import capture
from support import sweeps

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")]

PACKAGED = [entry for entry in MODELS if entry.needs]
OWN = [entry for entry in MODELS if not entry.needs]
QUICK = ("vae",)
"""The network that compiles in a moment."""


def check_training(entry):
    start = entry.model()
    ours, theirs = copy.deepcopy(start), copy.deepcopy(start)
    lr = learning_rate(entry, start)
    run, training = abele_contestant(entry, ours, lr, threads=2)
    run()
    loop_contestant(entry, theirs, lr)()
    error = difference(start, training.model.inner, theirs)
    allowed = 1e-3 if error < 1e-3 else 3 * noise(entry, start, theirs, lr)
    assert error < allowed


@pytest.mark.parametrize("entry", [e for e in OWN if e.name in QUICK], ids=lambda e: e.name)
def test_model__quick__trains_as_in_pytorch(entry):
    check_training(entry)


@pytest.mark.slow
@pytest.mark.parametrize("entry", sweeps.sampled([e for e in OWN if e.name not in QUICK], 8), ids=lambda e: e.name)
def test_model__three_steps__trains_as_in_pytorch(entry):
    check_training(entry)


@pytest.mark.slow
@pytest.mark.parametrize("entry", sweeps.sampled(PACKAGED, 8), ids=lambda e: e.name)
def test_model__of_a_package__is_recorded_with_a_loss(entry):
    missing = [package for package in entry.needs if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: the extra 'models' brings them")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = capture(Marked(entry.model()), entry.batches(1)[0], {}, training=True)
    assert captured.net.loss is not None
    assert captured.net.parameters
