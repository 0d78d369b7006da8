"""Optimisers: what is variable, what is refused, and how either kind is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from abele import poptorch
from abele.frontends.poptorch.rules import read_optimiser, read_rules
from abele.parallel import Adam, NetworkBuilder, Sgd


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))]


def test_variable_attributes__given_ones__are_variable() -> None:
    optimiser = poptorch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
    attributes = optimiser.variable_attrs
    assert not attributes.isConstant("momentum")
    assert attributes.isConstant("weight_decay")
    attributes.markAsConstant("momentum")
    attributes.markAsVariable("weight_decay")
    (rule,) = read_rules(optimiser)
    assert rule.variable == {"lr", "weight_decay"}


def test_variable_attributes__unknown_one__is_refused() -> None:
    with pytest.raises(AssertionError, match="Unknown attribute 'rate'"):
        poptorch.optim.SGD(parameters()).variable_attrs.markAsConstant("rate")


def test_read__torch_optimisers__keep_their_numbers() -> None:
    (sgd,) = read_rules(torch.optim.SGD(parameters(), lr=0.2, momentum=0.5, nesterov=True))
    assert sgd == Sgd(lr=0.2, momentum=0.5, nesterov=True)
    (adam,) = read_rules(torch.optim.AdamW(parameters(), lr=0.2, betas=(0.8, 0.9), weight_decay=0.3))
    assert adam == Adam(lr=0.2, beta1=0.8, beta2=0.9, weight_decay=0.3, decoupled=True)


def test_read__betas_of_poptorch__are_two_variables() -> None:
    (rule,) = read_rules(poptorch.optim.AdamW(parameters(), betas=(0.8, 0.9), bias_correction=False))
    assert rule.variable == {"lr", "beta1", "beta2"}
    assert isinstance(rule, Adam)
    assert not rule.bias_correction


def test_read__groups__keep_their_parameters() -> None:
    first, second = parameters()
    net = NetworkBuilder()
    values = {id(first): net.parameter((2,), "f32", "first")}
    groups = read_optimiser(torch.optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.5}], lr=0.1), values)
    assert [len(g.parameters) for g in groups] == [1, 0]
    assert [g.optimiser.numbers["lr"] for g in groups] == [0.1, 0.5]


def test_poptorch_optimisers__subclass_the_torch_ones() -> None:
    assert poptorch.optim.Adam.__bases__ == (poptorch.optim.Optimizer, torch.optim.Adam)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "amsgrad": (lambda: poptorch.optim.Adam(parameters(), amsgrad=True), "Only non-amsgrad Adam/AdamW"),
    "torch_amsgrad": (lambda: read_rules(torch.optim.Adam(parameters(), amsgrad=True)), "Only non-amsgrad"),
    "loss_scaling": (lambda: poptorch.optim.SGD(parameters(), loss_scaling=8.0), "loss_scaling does not exist"),
    "accum_type": (lambda: poptorch.optim.SGD(parameters(), accum_type=torch.half), "accumulators are torch.float32"),
    "kind": (lambda: read_rules(torch.optim.Rprop(parameters())), "Unsupported optimizer type Rprop"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_optimiser__that_cannot_be_run__is_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises((ValueError, poptorch.Error), match=text):
        make()
