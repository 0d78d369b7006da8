"""Models with blocks, and how PyTorch trains the same model: micro-batch by micro-batch, on the host."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from abele import poptorch
from abele.frontends.poptorch.options import Options


@dataclass(frozen=True)
class Run:
    """Training of a model: a batch of each call has all its micro-batches, of ``size`` samples each."""

    iterations: int = 1
    accumulation: int = 7
    replicas: int = 1
    size: int = 4
    calls: int = 2

    @property
    def samples(self) -> int:
        return self.iterations * self.accumulation * self.replicas * self.size

    def options(self, strategy: Any = None, system: Any = None) -> Options:
        opts = poptorch.Options().deviceIterations(self.iterations).replicationFactor(self.replicas)
        opts.Training.gradientAccumulation(self.accumulation)
        opts.outputMode(poptorch.OutputMode.All).showCompilationProgressBar(False).autoRoundNumIPUs(True)
        if strategy is not None:
            opts.setExecutionStrategy(strategy)
        if system is not None:
            opts.Abele.system(system)
        return opts


def loss_of(result: Any) -> torch.Tensor:
    """The loss, which is all that a model returns or the last of it."""
    loss: torch.Tensor = result[-1] if isinstance(result, tuple) else result
    return loss


def trained(model: nn.Module, run: Run, opts: Options, optimiser: Any, data: Sequence[torch.Tensor]) -> Any:
    """Losses of all calls on the device, [calls, micro-batches], and the wrapped model."""
    wrapped = poptorch.trainingModel(model, opts, optimiser)
    losses = torch.stack([loss_of(wrapped(*data)) for _ in range(run.calls)]).reshape(run.calls, -1)
    wrapped.copyWeightsToHost()
    return losses, wrapped


def trained_eagerly(model: nn.Module, run: Run, optimiser: Any, data: Sequence[torch.Tensor]) -> torch.Tensor:
    """PyTorch's losses for the same calls; gradients are the mean over the micro-batches of an update."""
    model.train()
    losses = []
    share = 1 / (run.accumulation * run.replicas)
    for _ in range(run.calls):
        parts = zip(*(t.split(run.size) for t in data), strict=True)
        for number, micro in enumerate(parts):
            loss = loss_of(model(*micro))
            (loss * share).backward()
            losses.append(loss.detach())
            if (number + 1) % (run.accumulation * run.replicas) == 0:
                optimiser.step()
                optimiser.zero_grad()
    return torch.stack(losses).reshape(run.calls, -1)


def same_weights(model: nn.Module, oracle: nn.Module, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """Hold the weights and buffers of two models against each other."""
    state = {name: tensor.float() for name, tensor in model.state_dict().items()}
    for name, tensor in oracle.state_dict().items():
        torch.testing.assert_close(state[name], tensor.float(), rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def check_trained(
    model: nn.Module,
    run: Run,
    strategy: Any,
    data: Sequence[torch.Tensor],
    *,
    optimiser: Any = None,
    eager: Any = None,
    system: Any = None,
    edit: Any = None,
    rtol: float = 2e-5,
    atol: float = 2e-6,
) -> Any:
    """Train a model on the device and with PyTorch; losses and weights are the same. Returns the wrapped model."""
    make = optimiser or (lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9))
    make_eager = eager or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    oracle = copy.deepcopy(model)
    poptorch.removeBlocks(oracle)
    opts = run.options(strategy, system)
    if edit is not None:
        edit(opts)
    losses, wrapped = trained(model, run, opts, make(model.parameters()), data)
    expected = trained_eagerly(oracle, run, make_eager(oracle.parameters()), data)
    torch.testing.assert_close(losses, expected, rtol=rtol, atol=atol)
    same_weights(model, oracle, rtol, atol)
    return wrapped


# --- models -----------------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Layers with a block each, by contexts; one of the last dimension is the class."""

    def __init__(
        self, layers: int = 3, width: int = 8, classes: int = 4, ipus: Sequence[int | None] | None = None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width if n + 1 < layers else classes) for n in range(layers))
        self.ipus = list(ipus) if ipus is not None else list(range(layers))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        for number, (layer, ipu) in enumerate(zip(self.layers, self.ipus, strict=True)):
            with poptorch.Block(f"layer{number}", ipu_id=ipu):
                x = layer(x)
                if number + 1 < len(self.layers):
                    x = torch.tanh(x)
                elif labels is not None:
                    return x, nn.functional.cross_entropy(x, labels)
        return x


def classified(samples: int, *shape: int, classes: int = 4, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs and labels."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, *shape, generator=generator)
    return x, torch.randint(0, classes, (samples,), generator=generator)


class Cnn(nn.Module):
    """Convolutions with batch norm, blocks begun by their modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first = poptorch.BeginBlock(
            nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()), "first", 0
        )
        self.second = poptorch.BeginBlock(
            nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()), "second", 1
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        x = self.second(self.first(x)).mean((2, 3))
        scores = self.head(x)
        return scores if labels is None else (scores, nn.functional.cross_entropy(scores, labels))


class Layer(nn.Module):
    """A layer of a transformer, as BERT has it: attention and two products, each with a norm after its sum."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.joined = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        query, key, value = (self._split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1]) + bias
        context = (self.dropout(scores.softmax(-1)) @ value).transpose(1, 2).reshape(x.shape)
        x = self.norms[0](x + self.dropout(self.joined(context)))
        return self.norms[1](x + self.dropout(self.narrow(nn.functional.gelu(self.wide(x)))))


class Bert(nn.Module):
    """BERT for masked words: embeddings, layers, and scores by the embeddings of words, which are tied.

    ``blocks`` says on which stage embeddings, each layer and the head are; None for no blocks.
    """

    def __init__(
        self,
        *,
        words: int = 50,
        width: int = 16,
        layers: int = 2,
        heads: int = 2,
        length: int = 6,
        dropout: float = 0.0,
        blocks: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.dense, self.last_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.words.weight
        self.apply(self._small)
        if blocks is not None:
            first, *middle, last = blocks
            poptorch.BeginBlock(self.words, "embeddings", ipu_id=first)
            for number, (layer, ipu) in enumerate(zip(self.layers, middle, strict=True)):
                poptorch.BeginBlock(layer, f"layer{number}", ipu_id=ipu)
            poptorch.BeginBlock(self.dense, "head", ipu_id=last)

    @staticmethod
    def _small(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        words = self.words(tokens)
        x = self.norm(words + self.positions(torch.arange(tokens.shape[1])))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        scores = self.decoder(self.last_norm(nn.functional.gelu(self.dense(x))))
        if labels is None:
            return scores
        return scores, nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)


def sentences(samples: int, length: int, words: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens with a rule that can be learnt, masks of the last few, and labels of one in five."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(0, words, (samples, 1), generator=generator)
    whole = (start + 3 * torch.arange(length)) % words
    chosen = torch.rand(samples, length, generator=generator) < 0.2
    chosen[:, 0] = True
    tokens = torch.where(chosen, torch.zeros_like(whole), whole)
    mask = torch.ones(samples, length)
    mask[: samples // 2, -1] = 0
    return tokens.int(), mask, torch.where(chosen, whole, -100)
