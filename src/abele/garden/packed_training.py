"""Training of BERT on rows of single sequences or on packs of them, by the same rules, with losses by sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, optim

from abele import poptorch
from abele.arrays import Float64
from abele.garden.models.packed_bert import INPUTS, PackedBert
from abele.packing.data.hyperparameters import PackedSettings, packed_settings
from abele.packing.data.layout import RowShape
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.samples import Samples
from abele.packing.packs import Packs

OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {"adamw": optim.AdamW, "lamb": poptorch.optim.LAMB}
"""Rules of training, by name; both have moments whose decays follow the packing factor."""


@dataclass(frozen=True, kw_only=True)
class BertSizes:
    """Sizes of the network and of its training.

    Attributes:
        vocabulary: Tokens that there are.
        width: Elements per position.
        layers: Layers of the encoder.
        heads: Attention heads.
        tokens: Tokens of a row.
        rows: Rows of a micro-batch.
        accumulation: Micro-batches of an update of single sequences; packs take as many fewer as they hold sequences.
        learning_rate: The highest, after a tenth of all sequences; it begins and ends at 0.
        betas: Decays of the moments on single sequences.
        weight_decay: Of all weights.
        optimizer: One of :data:`OPTIMIZERS`.
    """

    vocabulary: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 4
    tokens: int = 512
    rows: int = 1
    accumulation: int = 4
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    optimizer: str = "adamw"

    def model(self, sequences: float, *, packed: bool = True) -> PackedBert:
        """A new network whose losses are means over so many sequences; ``packed`` as :class:`PackedBert` has it."""
        sizes = {"width": self.width, "layers": self.layers, "heads": self.heads, "positions": self.tokens}
        return PackedBert(self.vocabulary, sequences=sequences, packed=packed, **sizes)

    def row_shape(self, depth: int) -> RowShape:
        """Rows of at most ``depth`` sequences, each of which may round its masked tokens up by one."""
        return RowShape({"tokens": self.tokens, "predictions": int(0.15 * self.tokens) + depth}, depth)


@dataclass
class LossCurve:
    """Course of training, update by update.

    Attributes:
        sequences: Sequences of each update.
        words: Sums over them of the mean loss of masked tokens.
        order: Sums over them of the loss of the segments' order.
        seconds: Time of each update.
        cpu_seconds: Processor time of each, of all threads.
    """

    sequences: list[float] = field(default_factory=list)
    words: list[float] = field(default_factory=list)
    order: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def per_sequence(self, *, cpu: bool = False) -> float:
        """Seconds by sequence of all updates but the first, which also prepares the host."""
        seconds = self.cpu_seconds if cpu else self.seconds
        return sum(seconds[1:]) / sum(self.sequences[1:])

    def means(self, parts: int) -> Float64:
        """Mean loss of masked tokens by sequence, over equal parts of all sequences, [parts]."""
        seen = np.concatenate([[0.0], np.cumsum(self.sequences)])
        summed = np.concatenate([[0.0], np.cumsum(self.words)])
        ends = np.linspace(0, seen[-1], parts + 1)
        found: Float64 = np.diff(np.interp(ends, seen, summed)) / np.diff(ends)
        return found


class BertTraining:
    """One training, an update at a time.

    Args:
        sizes: Of network and training.
        samples: The sequences.
        packs: Sequences of each row.
        options: PopTorch's options, without accumulation.
        depth: Most sequences of a pack.
        seed: Of first weights.
        packed: False: rows hold one sequence each, and the network's mask is of padding alone.
    """

    def __init__(
        self,
        sizes: BertSizes,
        samples: Samples,
        packs: Packs,
        options: poptorch.Options,
        *,
        depth: int,
        seed: int,
        packed: bool = True,
    ) -> None:
        self.sizes = sizes
        self.rows = PackedRows(samples, packs, sizes.row_shape(depth))
        factor = len(packs.items) / len(packs)
        self.settings: PackedSettings = packed_settings(
            factor, betas=sizes.betas, accumulation=sizes.accumulation, keep_batch=True
        )
        self.rows_per_update = sizes.rows * self.settings.accumulation
        self.updates = len(packs) // self.rows_per_update
        options.Training.gradientAccumulation(self.settings.accumulation)
        options.outputMode(poptorch.OutputMode.Sum)
        torch.manual_seed(seed)
        self.model = sizes.model(sizes.rows * factor, packed=packed)
        self.optimizer = OPTIMIZERS[sizes.optimizer](
            self.model.parameters(),
            lr=self._learning_rate(0),
            betas=self.settings.betas[:2],
            weight_decay=sizes.weight_decay,
        )
        self.executor = poptorch.trainingModel(self.model, options, optimizer=self.optimizer)
        self.curve = LossCurve()

    def compile(self) -> None:
        """Compile for the shapes of the rows."""
        self.executor.compile(*self._batch(0))

    @property
    def done(self) -> bool:
        """True if all updates are made."""
        return len(self.curve.sequences) == self.updates

    def update(self) -> float:
        """Make the next update; its mean loss of masked tokens by sequence."""
        number = len(self.curve.sequences)
        start, cpu_start = perf_counter(), process_time()
        batch = self._batch(number)
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(number)
        self.executor.setOptimizer(self.optimizer)
        words, order, _ = self.executor(*batch)
        self.curve.seconds.append(perf_counter() - start)
        self.curve.cpu_seconds.append(process_time() - cpu_start)
        sequences = int(self.rows.packs.begins[(number + 1) * self.rows_per_update])
        sequences -= int(self.rows.packs.begins[number * self.rows_per_update])
        self.curve.sequences.append(sequences)
        self.curve.words.append(float(words.sum()))
        self.curve.order.append(float(order.sum()))
        return self.curve.words[-1] / sequences

    def _batch(self, number: int) -> list[Tensor]:
        rows = np.arange(self.rows_per_update) + number * self.rows_per_update
        return inputs(self.rows, rows)

    def _learning_rate(self, number: int) -> float:
        share = (number + 0.5) / self.updates
        return self.sizes.learning_rate * min(share / 0.1, (1 - share) / 0.9)


def inputs(rows: PackedRows, numbers: npt.ArrayLike) -> list[Tensor]:
    """Some rows as a model's inputs."""
    batch = rows.take(numbers)
    return [torch.from_numpy(batch[name]) for name in INPUTS]


def held_out_losses(model: PackedBert, rows: PackedRows, options: poptorch.Options, batch: int) -> tuple[float, float]:
    """Mean losses by sequence, of masked tokens and of the order of segments, on whole batches of rows."""
    executor: Callable[..., tuple[Tensor, Tensor, Tensor]] = poptorch.inferenceModel(model, options)
    count = len(rows) // batch
    sums = np.zeros(2)
    for number in range(count):
        words, order, _ = executor(*inputs(rows, np.arange(batch) + number * batch))
        sums += float(words), float(order)
    words_mean, order_mean = sums / int(rows.packs.begins[count * batch])
    return float(words_mean), float(order_mean)
