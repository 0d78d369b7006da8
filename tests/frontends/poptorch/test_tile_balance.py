"""Work and memory of operators at a real size on a whole IPU: none leaves it to a few tiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from balance_kit import CASES

from abele import poptorch
from support import sweeps

MOST = 6.0
"""Bound of the busiest tile's work, and of the fullest tile's memory, in means over the 1,472 tiles of the chip.

Evenly spread work gives 1 to 2. Steps of recurrent layers and of CTC, which follow each other, are small: on all tiles
they would take longer than on a sixth of them, for each tile adds to what is exchanged."""

SEQUENTIAL = {
    "cholesky, one": 16.0,
    "triangular solve, one": 9.0,
    "lu, one": 10.0,
    "solve, one": 10.0,
    "inverse, one": 10.0,
    "determinant, one": 10.0,
    "qr, one": 9.0,
    "eigh, one": 8.0,
}
"""Factorisations of one matrix of 128 rows: 128 steps, each of which finds one pivot, column or diagonal block from
what the one before left; between them work is on all tiles. Many small matrices are held to the common bound."""

SMALLEST = 10_000
"""Cycles of the busiest tile below which there is not enough to spread."""

pytestmark = pytest.mark.usefixtures("whole_machine")

FEW = ("unfold", "fold", "attention, bools", "RNN, lengths", "triangular solve, one")


def _check(name: str) -> None:
    make, given = CASES[name]
    torch.manual_seed(0)
    options = poptorch.Options()
    options.Abele.threads(1)
    model = make()
    training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.01))
    training.compile(*given)
    report = training.report()
    training.destroy()
    cycles, held = report.compute_cycles_by_tile, report.memory.by_tile
    most = SEQUENTIAL.get(name, MOST)
    assert cycles.max() < max(most * cycles.mean(), SMALLEST), f"{np.argmax(cycles)} of {report.summary()}"
    assert held.max() < most * held.mean()


@pytest.mark.parametrize("name", FEW)
def test_operator__of_a_real_size__is_spread_over_tiles(name: str) -> None:
    _check(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sweeps.sampled([name for name in CASES if name not in FEW], 12))
def test_every_operator__of_a_real_size__is_spread_over_tiles(name: str) -> None:
    _check(name)


def test_exceptions__name_cases() -> None:
    assert set(SEQUENTIAL) | set(FEW) <= set(CASES)
