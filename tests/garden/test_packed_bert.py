"""BERT on packs: the losses and gradients of sequences on rows of their own, and the demo from end to end."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("scipy", reason="needs SciPy")

from abele import poptorch
from abele.garden import packed_bert
from abele.garden.models.packed_bert import PackedBert, waves
from abele.garden.packed_bert import Corpus, drawn_sequences, one_each
from abele.garden.packed_training import OPTIMIZERS, BertSizes, BertTraining, LossCurve, inputs
from abele.garden.sources import LibraryModule
from abele.garden.training import DemoSettings
from abele.packing import Packs
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.samples import Samples

pytestmark = pytest.mark.torch

SIZES = BertSizes(vocabulary=32, width=32, layers=2, heads=2, tokens=48, learning_rate=1e-2)
LENGTHS = np.array([20, 11, 17, 48, 5, 9, 30, 13])
PACKS = Packs(np.array([0, 1, 2, 3, 4, 5, 6, 7]), np.array([0, 3, 4, 7, 8]))
DEPTH = 3


@pytest.fixture(scope="module")
def samples() -> Samples:
    text = "the cat sat on a mat and saw that it was not red but blue " * 20
    return drawn_sequences(Corpus.of([LibraryModule("m", False, text)], 32), LENGTHS, 0)


def rows(samples: Samples, *, packed: bool) -> PackedRows:
    packs, depth = (PACKS, DEPTH) if packed else (one_each(len(LENGTHS)), 1)
    return PackedRows(samples, packs, SIZES.row_shape(depth))


def model(sequences: float = len(LENGTHS)) -> PackedBert:
    torch.manual_seed(1)
    made = SIZES.model(sequences)
    # Weights that are large enough for attention to matter.
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def by_sequence(model: PackedBert, rows: PackedRows) -> torch.Tensor:
    """Losses of masked tokens and of order, in the order of the sequences' numbers, [2, num_sequences]."""
    given = inputs(rows, np.arange(len(rows)))
    words, order = model.losses(*given)
    batch = rows.take(np.arange(len(rows)))
    there = torch.from_numpy(batch["samples"]) >= 0
    depth = there.shape[1]
    whose = torch.from_numpy(batch["masked_lm_weights"]).long()
    summed = torch.zeros(len(rows), depth + 1).scatter_add(1, whose, words)[:, 1:]
    number = torch.from_numpy(batch["samples"])[there]
    found = torch.stack([summed[there], order[there]])
    return found[:, torch.argsort(number)]


def test_packs__in_pytorch__have_the_losses_of_sequences_alone(samples: Samples) -> None:
    network = model()
    with torch.no_grad():
        alone, together = (by_sequence(network, rows(samples, packed=packed)) for packed in (False, True))
    assert alone.shape == (2, len(LENGTHS))
    assert alone.std(dim=1).min() > 0.05
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_rows_of_their_own__mask_of_padding_alone__have_the_losses_of_the_mask_of_ids(samples: Samples) -> None:
    network = model()
    with torch.no_grad():
        by_ids = by_sequence(network, rows(samples, packed=False))
        network.packed = False
        by_padding = by_sequence(network, rows(samples, packed=False))
        torch.testing.assert_close(by_padding, by_ids, rtol=0, atol=1e-5)
        wrong = by_sequence(network, rows(samples, packed=True))
    assert (wrong - by_ids).abs().max() > 1e-2


def test_packs__ids_left_out__have_other_losses(samples: Samples) -> None:
    network, packed = model(), rows(samples, packed=True)
    given = inputs(packed, np.arange(len(packed)))
    with torch.no_grad():
        right = network.losses(*given)[0]
        given[3] = torch.ones_like(given[3])
        wrong = network.losses(*given)[0]
    assert (right - wrong).abs().max() > 1e-2


def test_packs__in_pytorch__have_the_gradients_of_sequences_alone(samples: Samples) -> None:
    found = []
    for packed in (False, True):
        network, given = model(), rows(samples, packed=packed)
        network(*inputs(given, np.arange(len(given))))[-1].backward()
        found.append({name: p.grad for name, p in network.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-4 * float(gradient.abs().max()))


def options(accumulation: int = 1) -> poptorch.Options:
    made = poptorch.Options()
    made.Abele.threads(1)
    made.Training.gradientAccumulation(accumulation)
    made.outputMode(poptorch.OutputMode.Sum)
    return made


class EachLoss(torch.nn.Module):
    """The losses of every place, not their sums."""

    def __init__(self, network: PackedBert) -> None:
        super().__init__()
        self.network = network

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.network.losses(*given)


@pytest.mark.slow
def test_packs__on_the_machine__have_the_losses_of_sequences_alone(samples: Samples) -> None:
    network = model()
    with torch.no_grad():
        reference = by_sequence(network, rows(samples, packed=False))
    for packed in (False, True):
        executor = poptorch.inferenceModel(EachLoss(network), options())
        stand_in = type("Stand", (), {"losses": staticmethod(executor)})
        found = by_sequence(stand_in, rows(samples, packed=packed))  # type: ignore[arg-type]
        torch.testing.assert_close(found, reference, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_packs__one_update_on_the_machine__has_the_gradients_of_sequences_alone(samples: Samples) -> None:
    """Plain descent at rate 1 moves weights by the gradient, over eight rows of their own or four packs."""
    reference = model()
    given = rows(samples, packed=False)
    reference(*inputs(given, np.arange(len(given))))[-1].backward()
    for packed, accumulation in ((False, 8), (True, 4), (True, 2)):
        given = rows(samples, packed=packed)
        network = model(len(LENGTHS) / accumulation)
        before = {name: p.detach().clone() for name, p in network.named_parameters()}
        optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
        executor = poptorch.trainingModel(network, options(accumulation), optimizer=optimizer)
        executor(*inputs(given, np.arange(len(given))))
        executor.detachFromDevice()
        after = dict(network.named_parameters())
        for name, parameter in reference.named_parameters():
            gradient = parameter.grad
            moved = before[name] - after[name].detach()
            # What rounding of the weights leaves of a difference is their own last bit.
            bound = 1e-4 * float(gradient.abs().max()) + 1e-6 * float(before[name].abs().max())
            torch.testing.assert_close(moved, gradient, rtol=1e-4, atol=bound, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training__both_layouts__see_the_same_sequences_and_learn(samples: Samples, optimizer: str) -> None:
    sizes = replace(SIZES, optimizer=optimizer)
    for packs, depth in ((one_each(8), 1), (PACKS, DEPTH)):
        training = BertTraining(sizes, samples, packs, poptorch.Options(), depth=depth, seed=0, packed=depth > 1)
        assert training.settings.accumulation == (4 if depth == 1 else 2)
        while not training.done:
            training.update()
        assert sum(training.curve.sequences) == 8
        assert len(training.curve.seconds) == training.updates == 2
        assert training.curve.per_sequence() > 0
        training.executor.detachFromDevice()


def test_curve__parts__are_means_over_equal_numbers_of_sequences() -> None:
    curve = LossCurve([4, 2, 2], [8.0, 2.0, 6.0], [0, 0, 0], [9.0, 1.0, 3.0], [9.0, 2.0, 2.0])
    assert curve.means(1).tolist() == [2.0]
    assert curve.means(2).tolist() == [2.0, 2.0]
    assert curve.means(4).tolist() == [2.0, 2.0, 1.0, 3.0]
    assert curve.per_sequence() == 1.0
    assert curve.per_sequence(cpu=True) == 1.0


def test_waves__widths_odd_and_even__are_all_different() -> None:
    for width in (1, 5, 8):
        assert waves(40, width).shape == (40, width)
    table = waves(512, 64)
    assert torch.cdist(table, table).fill_diagonal_(1).min() > 1e-3


@pytest.mark.slow
def test_demo__few_packs__sets_both_trainings_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_bert, "SIZES", replace(SIZES, tokens=64, vocabulary=256))
    for name, value in {"NUM_PACKS": 16, "NUM_TEST": 8, "TEST_BATCH": 4}.items():
        monkeypatch.setattr(packed_bert, name, value)
    result = packed_bert.run(DemoSettings(threads=1), Console(file=io.StringIO()))
    figures = result.figures
    assert float(figures["factor"]) == pytest.approx(2, abs=0.5)
    assert float(figures["held_out_packed"]) == pytest.approx(float(figures["held_out_padded"]), rel=0.15)
    assert set(result.held_out[0].beside) == {"padded sequences", "counts of pieces"}
    assert "times as fast" in result.exhibit
    assert result.report.step_cycles.total > 0
