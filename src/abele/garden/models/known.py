"""Models by name, each with the arguments of one micro-batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from abele.errors import InvalidOptionError, nearest
from abele.frontends.poptorch.functions.tensor_parallel import ColumnSplit, Style
from abele.frontends.poptorch.training import optim
from abele.garden.models.bert import BertPretraining
from abele.garden.models.gpt2 import Gpt2
from abele.garden.models.resnet import ResNet50

Arguments = tuple[Tensor, ...]
SplitPlan = dict[str, str | Style]
_MASKED = 0.15
"""Part of the positions of a sequence whose tokens BERT guesses."""


_TRANSFORMER: SplitPlan = {
    "embeddings.tokens": "vocabulary",
    "layers.*.attended.attention.heads": "divide",
    "layers.*.attended.attention.project": ColumnSplit(blocks=3),
    "layers.*.attended.attention.output": "row",
    "layers.*.feed_forward.widen": "column",
    "layers.*.feed_forward.narrow": "row",
    "head.decode": "vocabulary",
    "head.loss": "vocabulary",
}
"""Heads and features of each layer, and the vocabulary, over the replicas of a group. Source: Shoeybi et al.,
Megatron-LM (2019), section 3."""


@dataclass(frozen=True)
class KnownModel:
    """A model that has a name.

    Attributes:
        name: The name.
        title: Name of the model, for people.
        sequence: Positions of a sequence that it is usually trained with; None where it has no sequences.
        make: Makes it for sequences of so many positions, in float16; its weights hold whatever was in memory.
        arguments: Arguments of a micro-batch of so many samples, with sequences of so many positions.
        micro_batch: Samples of a micro-batch that it is usually trained with.
        optimizer: Makes the optimiser that it is usually trained with, with sums of gradients in float16.
        split: Plan that splits its layers over a group of replicas; None where none is known.
    """

    name: str
    title: str
    sequence: int | None
    make: Callable[[int], nn.Module]
    arguments: Callable[[int, int], Arguments]
    micro_batch: int
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    split: SplitPlan | None = None

    def of_length(self, sequence: int | None) -> tuple[nn.Module, Arguments, torch.optim.Optimizer, SplitPlan | None]:
        """The model with the arguments of its usual micro-batch, its optimiser, and how its layers are split.

        Args:
            sequence: Positions of a sequence; None for the usual number. Longer ones make smaller micro-batches.

        Raises:
            InvalidOptionError: The model has no sequences.
        """
        if sequence is not None and self.sequence is None:
            raise InvalidOptionError(f"{self.name} has no sequences, so none can be {sequence} long")
        usual = self.sequence or 1
        length = sequence or usual
        model = self.make(length)
        arguments = self.arguments(max(1, self.micro_batch * usual // length), length)
        return model, arguments, self.optimizer(model), self.split


def known_model(name: str) -> KnownModel:
    """The model of a name.

    Raises:
        InvalidOptionError: There is none.
    """
    if name not in KNOWN:
        close = nearest(name, KNOWN)
        raise InvalidOptionError(
            f"no model is called {name!r}",
            remedy=f"did you mean {close!r}?" if close else f"one of {', '.join(KNOWN)}; or path/to/file.py:function",
        )
    return KNOWN[name]


class _WithoutNumbers(TorchFunctionMode):
    """Modules made inside draw no numbers for their weights, which would take most of the time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        # Functions of nn.init call such methods where no mode sees them any more.
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else named["tensor"]
        return func(*args, **named)


@contextmanager
def _half_weights() -> Iterator[None]:
    """Modules made inside have weights of float16, of no values in particular."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        with _WithoutNumbers():
            yield
    finally:
        torch.set_default_dtype(before)


def _numbers(*shape: int) -> Tensor:
    """Numbers of tokens, places or classes, of which only the shape counts."""
    return torch.zeros(shape, dtype=torch.int32)


def _lamb(model: nn.Module) -> torch.optim.Optimizer:
    half = torch.float16
    return optim.LAMB(model.parameters(), lr=1e-3, accum_type=half, first_order_momentum_accum_type=half)


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    half = torch.float16
    return optim.AdamW(model.parameters(), lr=1e-4, accum_type=half, first_order_momentum_accum_type=half)


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    half = torch.float16
    return optim.SGD(model.parameters(), lr=0.1, momentum=0.9, accum_type=half, velocity_accum_type=half)


def _bert(name: str, title: str, size: tuple[int, int, int], micro_batch: int) -> KnownModel:
    width, layers, heads = size
    vocabulary = 30_400

    def make(positions: int) -> nn.Module:
        with _half_weights():
            return BertPretraining(vocabulary, width, layers, heads, positions)

    def arguments(batch: int, positions: int) -> Arguments:
        sequence, masked = _numbers(batch, positions), math.ceil(_MASKED * positions)
        return (
            sequence,
            torch.zeros_like(sequence),
            torch.ones(batch, positions, dtype=torch.int32),
            _numbers(batch, masked).long(),
            _numbers(batch, masked).long(),
            _numbers(batch).long(),
        )

    return KnownModel(name, title, 128, make, arguments, micro_batch, optimizer=_lamb, split=_TRANSFORMER)


def _gpt2(name: str, title: str, size: tuple[int, int, int]) -> KnownModel:
    width, layers, heads = size
    vocabulary = 50_257

    def make(positions: int) -> nn.Module:
        with _half_weights():
            return Gpt2(vocabulary, width, layers, heads, positions)

    def arguments(batch: int, positions: int) -> Arguments:
        return _numbers(batch, positions), _numbers(batch, positions).long()

    return KnownModel(name, title, 1024, make, arguments, 1, optimizer=_adam, split=_TRANSFORMER)


def _resnet50() -> KnownModel:
    def make(_: int) -> nn.Module:
        with _half_weights():
            return ResNet50()

    def arguments(batch: int, _: int) -> Arguments:
        return torch.zeros(batch, 3, 224, 224, dtype=torch.float16), _numbers(batch).long()

    return KnownModel("resnet-50", "ResNet-50 v1.5, 224 x 224", None, make, arguments, 16, optimizer=_sgd)


_ALL = (
    _bert("bert-large", "BERT-Large pre-training, sequences of 128", (1024, 24, 16), 8),
    _bert("bert-base", "BERT-base pre-training, sequences of 128", (768, 12, 12), 32),
    _resnet50(),
    _gpt2("gpt2-medium", "GPT-2 medium, sequences of 1,024", (1024, 24, 16)),
)
KNOWN: dict[str, KnownModel] = {model.name: model for model in _ALL}
"""The models by name."""
