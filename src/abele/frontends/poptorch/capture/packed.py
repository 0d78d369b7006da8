"""Packed sequences while a model is recorded: kept as they were before packing, [steps, batch, …], with their lengths.

PyTorch packs sequences into rows whose number depends on the lengths. Here the sequences stay padded, so that shapes
are known, and layers run over all steps: what a layer makes past the end of a sequence is replaced by zeros, the states
are those of its last step, and backwards in time means from its own last step. Lengths may be inputs of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from abele.frontends.poptorch.capture.patches import patched

Tensor = torch.Tensor


@torch.library.custom_op("abele::linear_recurrence", mutates_args=())
def _linear_recurrence(factor: Tensor, addend: Tensor) -> Tensor:
    rows = []
    state = torch.zeros_like(addend[0])
    for f, a in zip(factor, addend, strict=True):
        state = f * state + a
        rows.append(state)
    return torch.stack(rows)


@_linear_recurrence.register_fake
def _(factor: Tensor, addend: Tensor) -> Tensor:
    return torch.empty_like(addend)


@contextmanager
def packed_layers() -> Iterator[None]:
    """Inside, recurrent layers take packed sequences as :func:`pack` makes them."""
    with ExitStack() as stack:
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            stack.enter_context(patched(kind, forward=_taking_packed(kind.forward)))
        yield


def pack(value: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The sequences, steps first, and their lengths."""
    return (value.transpose(0, 1) if batch_first else value), lengths


def pad(data: Tensor, lengths: Tensor, batch_first: bool, padding: float, total: int) -> tuple[Tensor, Tensor]:
    """The sequences with ``padding`` past their ends, and their lengths."""
    made = torch.where(_is_valid(data, lengths), data, padding)
    if total > data.shape[0] and total != lengths.shape[0]:
        made = functional.pad(made, (0, 0) * (data.ndim - 1) + (0, total - data.shape[0]), value=padding)
    return (made.transpose(0, 1) if batch_first else made), lengths


def _taking_packed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def taking(self: nn.RNNBase, input: Any, hx: Any = None) -> Any:
        if not isinstance(input, PackedSequence):
            return forward(self, input, hx)
        states = _first_states(self, input, hx)
        outputs, lasts = _layers(self, input.data, input.batch_sizes, states)
        packed = PackedSequence(outputs, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        found: Any = lasts if self.mode == "LSTM" else lasts[0]
        return packed, self.permute_hidden(found, input.unsorted_indices)

    return taking


def _first_states(layer: nn.RNNBase, packed: PackedSequence, given: Any) -> tuple[Tensor, ...]:
    if given is not None:
        sorted_ones = layer.permute_hidden(given, packed.sorted_indices)
        return sorted_ones if isinstance(sorted_ones, tuple) else (sorted_ones,)
    batch, count = packed.data.shape[1], layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or layer.hidden_size] + ([layer.hidden_size] if layer.mode == "LSTM" else [])
    return tuple(packed.data.new_zeros(count, batch, size) for size in sizes)


def _layers(
    layer: nn.RNNBase, x: Tensor, lengths: Tensor, states: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    directions = 2 if layer.bidirectional else 1
    lasts: list[tuple[Tensor, ...]] = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(directions):
            place = number * directions + direction
            before = tuple(s[place : place + 1] for s in states)
            ordered = _turned(x, lengths) if direction else x
            made, last = _one_layer(layer, ordered, lengths, before, layer.all_weights[place])
            lasts.append(last)
            outputs.append(_turned(made, lengths) if direction else made)
        x = torch.cat(outputs, 2)
        if layer.dropout and number < layer.num_layers - 1:
            x = functional.dropout(x, layer.dropout, layer.training)
    return x, tuple(torch.stack(part) for part in zip(*lasts, strict=True))


def _one_layer(
    layer: nn.RNNBase, x: Tensor, lengths: Tensor, before: tuple[Tensor, ...], weights: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs, zero past the ends, and the states after each sequence's last step."""
    function: Any = getattr(torch._VF, layer.mode.lower())
    state: Any = before if layer.mode == "LSTM" else before[0]
    settings = {"has_biases": layer.bias, "num_layers": 1, "dropout": 0.0, "train": layer.training}
    outputs = function(x, state, weights, **settings, bidirectional=False, batch_first=False)[0]
    kept = [outputs]
    if layer.mode == "LSTM":
        kept.append(_cell_states(x, outputs, before, weights))
    steps = torch.arange(x.shape[0]).reshape(-1, 1, 1)
    is_last = steps == lengths.reshape(1, -1, 1) - 1
    lasts = tuple(torch.where(is_last, k, 0.0).sum(0) for k in kept)
    return torch.where(_is_valid(x, lengths), outputs, 0.0), lasts


def _cell_states(x: Tensor, outputs: Tensor, before: tuple[Tensor, ...], weights: Sequence[Tensor]) -> Tensor:
    """The cell state after every step, which the layer does not give: from the gates of all steps at once."""
    previous = torch.cat([before[0], outputs[:-1]], 0)
    biases = weights[2:4] if len(weights) > 3 else [None, None]
    sums = functional.linear(x, weights[0], biases[0]) + functional.linear(previous, weights[1], biases[1])
    entering, forget, candidate, _ = sums.chunk(4, 2)
    share = forget.sigmoid()
    addend = entering.sigmoid() * candidate.tanh()
    first = addend[:1] + share[:1] * before[1]
    made: Tensor = _linear_recurrence(share, torch.cat([first, addend[1:]], 0))
    return made


def _is_valid(data: Tensor, lengths: Tensor) -> Tensor:
    shape = (1, -1, *(1,) * (data.ndim - 2))
    return torch.arange(data.shape[0]).reshape(-1, *(1,) * (data.ndim - 1)) < lengths.reshape(shape)


def _turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence backwards, up to its own length."""
    steps, batch = x.shape[:2]
    number = torch.arange(steps).reshape(-1, 1)
    ends = lengths.reshape(1, -1)
    place = torch.where(number < ends, ends - 1 - number, number) * batch + torch.arange(batch).reshape(1, -1)
    return x.reshape(steps * batch, -1).index_select(0, place.reshape(-1)).reshape(x.shape)
