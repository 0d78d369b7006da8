"""Ways to train: two wrappers over shared modules, several losses, and parts that are frozen, beside PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from abele import poptorch

bce = nn.functional.binary_cross_entropy_with_logits


class Critic(nn.Module):
    """Loss of a discriminator from real samples and made ones."""

    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        made = self.critic(self.generator(noise).detach())
        true = self.critic(real)
        return poptorch.identity_loss(bce(made, torch.zeros_like(made)) + bce(true, torch.ones_like(true)), "none")


class Maker(nn.Module):
    """Loss of a generator from its discriminator."""

    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        made = self.critic(self.generator(noise))
        return poptorch.identity_loss(bce(made, torch.ones_like(made)), "none")


def networks() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(2)
    generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return generator, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


def assert_close(one: nn.Module, other: nn.Module) -> None:
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_gan__two_wrappers_over_the_same_modules__train_each_other_s_opponent() -> None:
    generator, critic = networks()
    twins = copy.deepcopy((generator, critic))
    data = torch.Generator().manual_seed(1)
    batches = [(torch.randn(4, 3, generator=data), torch.randn(4, 2, generator=data) + 2) for _ in range(4)]

    def optimisers(g: nn.Module, c: nn.Module, room: Any) -> tuple[Any, Any]:
        return room.Adam(g.parameters(), lr=0.01, betas=(0.5, 0.9)), room.Adam(c.parameters(), lr=0.02)

    of_maker, of_critic = optimisers(generator, critic, poptorch.optim)
    train_critic = poptorch.trainingModel(Critic(generator, critic), optimizer=of_critic)
    train_maker = poptorch.trainingModel(Maker(generator, critic), optimizer=of_maker)
    for noise, real in batches:
        train_critic(noise, real)
        train_maker(noise)
    eager_maker, eager_critic = optimisers(*twins, torch.optim)
    for noise, real in batches:
        eager_critic.zero_grad()
        made, true = twins[1](twins[0](noise).detach()), twins[1](real)
        (bce(made, torch.zeros_like(made)) + bce(true, torch.ones_like(true))).backward()
        eager_critic.step()
        eager_maker.zero_grad()
        made = twins[1](twins[0](noise))
        bce(made, torch.ones_like(made)).backward()
        eager_maker.step()
    train_maker.copyWeightsToHostIfNeeded()
    train_critic.copyWeightsToHostIfNeeded()
    assert_close(generator, twins[0])
    assert_close(critic, twins[1])


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.other = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 2)

    def losses(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.tanh(self.body(x))
        return nn.functional.mse_loss(self.one(features)[:, 0], x.sum(1)), nn.functional.cross_entropy(
            self.other(features), y
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = self.losses(x, y)
        return first, second, poptorch.identity_loss(0.3 * first + second, "none")


X, Y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.tensor([0, 1, 1, 0])


def test_losses__several_of_which_one_is_final__are_trained_together() -> None:
    torch.manual_seed(4)
    model = TwoHeads()
    twin = copy.deepcopy(model)
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.2)
    first, second = twin.losses(X, Y)
    (0.3 * first + second).backward()
    optimiser.step()
    training = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.2))
    outputs = training(X, Y)
    torch.testing.assert_close(outputs[2], 0.3 * first.detach() + second.detach())
    assert_close(model, twin)


def test_frozen__body__has_no_gradient_on_the_device() -> None:
    model = TwoHeads()
    model.body.requires_grad_(False)
    before = copy.deepcopy(model.body)
    training = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, Y)
    assert_close(model.body, before)
    names = training.getTensorNames()
    assert any(name.startswith("one.weight") for name in names)
    assert not any("body" in name and "grad" in name for name in names)


@pytest.mark.parametrize("wanted", [False, True])
def test_requires_grad__changed_after_compiling__warns(wanted: bool) -> None:
    model = TwoHeads()
    model.body.requires_grad_(not wanted)
    training = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))
    training.compile(X, Y)
    model.body.requires_grad_(wanted)
    with pytest.warns(UserWarning, match=f"requires_grad={wanted}"):
        training(X, Y)
