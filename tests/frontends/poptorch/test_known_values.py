"""Sizes that follow from constants of a model are known when it is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from abele import poptorch

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def lower(rows: int = 3, columns: int = 4) -> Tensor:
    return torch.ones(rows, columns, dtype=torch.bool).tril()


def viewed(x: Tensor) -> Tensor:
    return x[lower()].view(2, -1)


def joined(x: Tensor) -> Tensor:
    return torch.cat([x[lower()], x[lower()] * 2])


def multiplied(x: Tensor) -> Tensor:
    return x[lower()] @ torch.arange(12.0).view(6, 2)


def by_places(x: Tensor) -> Tensor:
    places = torch.nonzero(lower())
    return x[places[:, 0], places[:, 1]] + x[lower()]


def of_columns(x: Tensor) -> Tensor:
    return x[:, torch.tensor([True, False, True, True])].reshape(9)


def compared(x: Tensor) -> Tensor:
    near = (torch.arange(3)[:, None] - torch.arange(4)[None]).abs() <= 1
    return x[near].view(-1, 2)


def written_in_place(x: Tensor) -> Tensor:
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1] = True
    mask[0, 2:].fill_(True)
    return x[mask].view(3, 2)


def written_through_a_view(x: Tensor) -> Tensor:
    mask = torch.ones(12, dtype=torch.bool)
    rows = mask.view(3, 4)
    rows[2] = False
    return x.flatten()[mask].view(4, 2) + rows.sum()


def beside_changes(x: Tensor) -> Tensor:
    y = (x * 1).add_(1)
    chosen = y[lower()]
    chosen.mul_(2)
    return chosen.view(3, 2)


def joined_beside_changes(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = 0
    return torch.stack([y[lower()], y[lower()]]).view(4, 3) + torch.cat([y[lower()], y[lower()]]).view(4, 3)


def unknown_written(x: Tensor) -> Tensor:
    """Known values overwritten by unknown ones: the new values count."""
    table = torch.zeros(3, 4)
    table[1] = x[0]
    table += 1
    return table * (table > 1)


def in_a_loop(x: Tensor) -> Tensor:
    """Values that enter a loop are forgotten, and so are their views."""
    table = torch.zeros(3, 4)
    row = table[0]
    if not poptorch.isRunningOnIpu():
        return x * 2 + row
    return poptorch.for_loop(2, lambda t, y: [t + 1, y + x], [table, torch.zeros(3, 4)])[1] + row


def selected(x: Tensor) -> Tensor:
    return x.masked_select(torch.arange(4) > 1).view(3, 2) + torch.masked_select(x, lower()).view(3, 2)


def by_length(x: Tensor) -> Tensor:
    return x[:, : int(lower().sum()) - 4]


MODELS: list[Callable[[Tensor], Tensor]] = [
    viewed,
    joined,
    multiplied,
    by_places,
    of_columns,
    compared,
    written_in_place,
    written_through_a_view,
    beside_changes,
    joined_beside_changes,
    unknown_written,
    in_a_loop,
    selected,
    by_length,
]


@pytest.mark.parametrize("forward", MODELS, ids=lambda f: f.__name__)
def test_masks__of_constants__have_sizes(forward: Callable[[Tensor], Tensor]) -> None:
    torch.testing.assert_close(poptorch.inferenceModel(forward)(X.clone()), forward(X.clone()))


def test_transformer__with_a_causal_mask_that_the_model_makes__matches_the_host() -> None:
    """PyTorch's encoder asks in Python whether its mask is causal."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, x: Tensor) -> Tensor:
            size = x.shape[1]
            return self.layers(x, mask=torch.full((size, size), float("-inf")).triu(1))

    torch.manual_seed(0)
    model, x = Encoder().eval(), torch.randn(2, 5, 8)
    expected = model(x).detach()
    torch.testing.assert_close(poptorch.inferenceModel(model)(x), expected, atol=1e-5, rtol=1e-5)


class Masked(nn.Module):
    """A layer on what a constant mask leaves, after a norm that changes its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.BatchNorm1d(4), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.norm(x)[lower()]).pow(2).mean()


def test_masks__in_training__leave_what_a_layer_takes() -> None:
    torch.manual_seed(0)
    model, reference = Masked(), Masked()
    reference.load_state_dict(model.state_dict())
    host = torch.optim.SGD(reference.parameters(), lr=0.1)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return poptorch.identity_loss(self.model(x), reduction="none")

    run = poptorch.trainingModel(Loss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        loss = reference(X)
        host.zero_grad()
        loss.backward()
        host.step()
        torch.testing.assert_close(run(X), loss.detach())


def test_loops__whose_values_start_as_constants__change_them() -> None:
    """A value of the first trip is none of the others'."""

    class Counted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            def body(i: Tensor, y: Tensor) -> list[Tensor]:
                return [i + 1, y + i * x]

            return poptorch.for_loop(3, body, [torch.zeros(1), torch.zeros(3, 4)])[1]

    torch.testing.assert_close(poptorch.inferenceModel(Counted())(X), X * 3)


def test_loops__that_ask_for_values__are_refused() -> None:
    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            def body(i: Tensor, y: Tensor) -> list[Tensor]:
                return [i + 1, y + x if i.sum() > 1 else y]

            return poptorch.for_loop(3, body, [torch.zeros(2), torch.zeros(3, 4)])[1]

    with pytest.raises(poptorch.Error, match="depends on the value of a tensor"):
        poptorch.inferenceModel(Asking())(X)


class WithBuffers(nn.Module):
    """A function of a model's buffers and an input."""

    def __init__(self, function: Callable[..., Any], **buffers: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


COUNT = torch.tensor(2)

OF_BUFFERS: dict[str, Callable[[Any, Tensor], Any]] = {
    "item": lambda m, x: x[: m.n.item()],
    "slice": lambda m, x: x[: m.n] * float(m.scale),
    "int": lambda m, x: x.reshape(int(m.n) + 1, -1),
    "condition": lambda m, x: x * 2 if m.n > 1 else x,
    "list": lambda m, x: x.split(m.lengths.tolist())[1],
    "numpy": lambda m, x: x * float(m.lengths.numpy()[1]),
    "loop": lambda m, x: sum(x[int(n)] for n in m.lengths),
    "mask": lambda m, x: x[m.mask],
    "places": lambda m, x: x[:, m.mask.nonzero().squeeze(1)],
    "repeats": lambda m, x: x.repeat_interleave(m.lengths, 0)[: m.n] if x.shape[0] == 2 else x[: m.n],
    "counts": lambda m, x: torch.bincount(m.lengths) + x[0, :3],
    "equal": lambda m, x: x if torch.equal(m.lengths, m.lengths) else -x,
    "outside": lambda m, x: x[: COUNT.item()],
    "of_others": lambda m, x: x[: (m.lengths.sum() - 1).item()],
}


@pytest.mark.parametrize("name", OF_BUFFERS)
def test_buffer__that_nobody_writes__is_known(name: str) -> None:
    buffers = {
        "n": torch.tensor(2),
        "scale": torch.tensor(1.5),
        "lengths": torch.tensor([1, 2]),
        "mask": torch.tensor([True, False, True]),
    }
    model = WithBuffers(OF_BUFFERS[name], **buffers)
    x = X[:, :3]
    torch.testing.assert_close(poptorch.inferenceModel(model)(x), model(x), check_dtype=False)


def test_buffer__that_the_model_writes__is_not_known() -> None:
    def function(model: Any, x: Tensor) -> Tensor:
        model.n += 1
        return x * 2 if model.n > 1 else x

    with pytest.raises(poptorch.Error, match="depends on the value of a tensor"):
        poptorch.inferenceModel(WithBuffers(function, n=torch.tensor(0)))(X)


def test_buffers__read_and_written_ones__are_kept_apart() -> None:
    def function(model: Any, x: Tensor) -> Tensor:
        model.n += 1
        return x[: model.size.item()] * model.n

    model = poptorch.inferenceModel(WithBuffers(function, n=torch.tensor(0), size=torch.tensor(2)))
    for call in (1, 2, 3):
        torch.testing.assert_close(model(X), X[:2] * call)


def test_buffer__that_the_host_updates__is_not_known() -> None:
    options = poptorch.Options().updatableNamedBuffers(["scale"])
    model = WithBuffers(lambda m, x: x * m.scale.item(), scale=torch.tensor(2.0))
    wrapped = poptorch.inferenceModel(model, options)
    torch.testing.assert_close(wrapped(X), X * 2)
    model.scale.fill_(3.0)  # type: ignore[operator]
    wrapped.copyNamedBuffersToDevice()
    torch.testing.assert_close(wrapped(X), X * 3)


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_transformer__of_layers__takes_masks_of_all_kinds(count: int) -> None:
    layers = nn.Transformer(8, 2, count, count, 16, 0.0, batch_first=True).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers
            self.register_buffer("mask", mask)

        def forward(self, x: Tensor, y: Tensor, given: Tensor, padding: Tensor) -> tuple[Tensor, ...]:
            made = layers.generate_square_subsequent_mask(4)
            rest: dict[str, Any] = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
            return (
                layers(x, y, tgt_mask=given, **rest),
                layers.decoder(y, x, tgt_mask=made),
                layers.decoder(y, x, tgt_mask=self.mask, tgt_is_causal=True),
                layers.encoder(y, given == -torch.inf),
            )

    args = torch.randn(2, 5, 8), torch.randn(2, 4, 8), mask, padding
    model = Masked()
    expected = model(*args)  # With gradients: PyTorch's own fast path takes no causal masks.
    for got, wanted in zip(poptorch.inferenceModel(model)(*args), expected, strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-4, atol=1e-5)


def test_bincount__with_minlength__counts_and_refuses_larger_numbers() -> None:
    def function(i: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.bincount(i, minlength=5), i.bincount(w, 5)

    numbers, weights = torch.tensor([0, 1, 1, 3]), torch.tensor([0.5, 1.0, 2.0, 4.0])
    model = poptorch.inferenceModel(function)
    for got, wanted in zip(model(numbers, weights), function(numbers, weights), strict=True):
        torch.testing.assert_close(got, wanted, check_dtype=False)
    with pytest.raises(poptorch.Error, match="number 7 of bincount is out of bounds: there are 5"):
        model(torch.tensor([0, 1, 7, 3]), weights)
