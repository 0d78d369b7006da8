"""Sparse layers as parts of users' models: norms, dropout, shared weights, optimisers, files, types, exports."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from abele import poptorch
from abele.errors import InvalidOptionError, SparseOverflowError, SparsePatternError
from abele.frontends.poptorch.sparse import SparseLinear
from abele.poptorch import sparse
from abele.sparsity import random_pattern


class WithLoss(nn.Module):
    """A model and the loss of its scores."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        scores = self.net(x)
        return scores, nn.functional.cross_entropy(scores, labels)


class Twice(nn.Module):
    """A layer that is called twice."""

    def __init__(self, one: SparseLinear) -> None:
        super().__init__()
        self.one, self.head = one, nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.tanh(self.one(torch.tanh(self.one(x)))))
        return scores


def thin(inputs: int, outputs: int, density: float = 0.3, **more: Any) -> SparseLinear:
    return SparseLinear(inputs, outputs, density=density, **{"block": 4, "dynamic": True, "rows": 8, **more})


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 32), torch.randint(5, (8,))


def in_unused_slots(layer: SparseLinear, slots: torch.Tensor) -> torch.Tensor:
    """Contents of the slots without a value."""
    assert layer.plan is not None
    unused = torch.ones(slots.shape, dtype=torch.bool)
    unused[torch.from_numpy(layer.plan.slots(layer.pattern).reshape(-1))] = False
    return slots.detach()[unused]


def steps_of_both(net: nn.Module, make: Callable[[Any], Any], schedule: Any = None, count: int = 4) -> WithLoss:
    """Train on the device and on the host, with RigL; returns the host's twin."""
    model = WithLoss(net)
    twin = copy.deepcopy(model)
    ours, theirs = make(model.parameters()), make(twin.parameters())
    training = poptorch.trainingModel(model, None, ours)
    drivers = [sparse.RigL(of, o, interval=2, end=9) for of, o in ((training, None), (twin, theirs))]
    schedules = [schedule(o) for o in (ours, theirs)] if schedule else []
    for _ in range(count):
        given = batch()
        training(*given)
        theirs.zero_grad()
        twin(*given)[1].backward()
        theirs.step()
        for driver in drivers:
            driver.step(*given)
        for each in schedules:
            each.step()
        training.setOptimizer(ours)
    return twin


def test_sequential__with_norms_and_dropout__evaluates_as_pytorch() -> None:
    net = nn.Sequential(
        thin(32, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.2), thin(48, 16, dynamic=False), nn.Linear(16, 5)
    )
    model = WithLoss(net)
    training = poptorch.trainingModel(model, None, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.3))
    tester, driver = poptorch.inferenceModel(net), sparse.SET(training, interval=1, end=9)
    for _ in range(2):
        given = batch()
        training(*given)
        driver.step(*given)
        shown = tester(given[0])
        torch.testing.assert_close(shown, copy.deepcopy(net).eval()(given[0]).detach(), rtol=1e-4, atol=1e-5)
    assert not in_unused_slots(driver.carrier.layers["net.0"], driver.carrier.layers["net.0"].values).any()


@pytest.mark.slow
def test_rigl__of_a_layer_that_is_called_twice__is_pytorch() -> None:
    net = Twice(thin(32, 32))
    twin: Any = steps_of_both(net, lambda p: torch.optim.Adam(p, lr=0.01)).net
    assert net.one.pattern == twin.one.pattern
    torch.testing.assert_close(net.one.values.detach(), twin.one.values.detach(), rtol=1e-3, atol=1e-5)


def test_driver__of_layers_that_share_values__is_refused() -> None:
    pattern = random_pattern((32, 32), 0.3, (4, 4))
    net = nn.Sequential(*(SparseLinear(32, 32, pattern=pattern, dynamic=True, rows=8) for _ in range(2)))
    first, second = net
    second.values = first.values
    with pytest.raises(InvalidOptionError, match="layers '0' and '1' share their values"):
        sparse.RigL(net, end=9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.01, weight_decay=0.1),
        lambda p: poptorch.optim.AdamW(p, lr=0.01, weight_decay=0.3, max_grad_norm=0.1),
        lambda p: poptorch.optim.LAMB(p, lr=0.01, weight_decay=0.3),
    ],
)
def test_optimisers__with_decay_and_clipping__leave_unused_slots_zero(make: Any) -> None:
    model = WithLoss(nn.Sequential(thin(32, 48), nn.Tanh(), nn.Linear(48, 5)))
    training = poptorch.trainingModel(model, None, make(model.parameters()))
    driver = sparse.RigL(training, interval=2, end=9)
    for _ in range(4):
        given = batch()
        training(*given)
        driver.step(*given)
    (layer,) = driver.carrier.layers.values()
    assert not in_unused_slots(layer, layer.values).any()


def test_clipping__by_norm_on_the_host__counts_held_weights_alone() -> None:
    layer = thin(32, 48)
    dense, x = layer.to_dense(), torch.randn(8, 32)
    for one in (layer, dense):
        (one(x) ** 2).sum().backward()
    assert layer.values.grad is not None
    assert dense.weight.grad is not None
    assert dense.bias.grad is not None
    held = layer.pattern.values_of(dense.weight.grad.numpy())
    wanted = np.sqrt((held.astype("f8") ** 2).sum() + float((dense.bias.grad**2).sum()))
    assert float(nn.utils.clip_grad_norm_(layer.parameters(), 0.1)) == pytest.approx(wanted, rel=1e-5)
    assert not in_unused_slots(layer, layer.values.grad).any()


@pytest.mark.slow
def test_rigl__with_a_schedule_of_rates__is_pytorch() -> None:
    net: Any = nn.Sequential(thin(32, 48), nn.Tanh(), nn.Linear(48, 5))
    twin: Any = steps_of_both(
        net,
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    ).net
    assert net[0].pattern == twin[0].pattern
    torch.testing.assert_close(net[0].values.detach(), twin[0].values.detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("one", [{"dynamic": False, "rows": None}, {}, {"rows": 100}, {"dtype": torch.float16}])
@pytest.mark.parametrize("other", [{"dynamic": False, "rows": None}, {}, {"density": 0.5}])
def test_state_dict__of_another_density_or_plan__brings_the_same_weights(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    source, target = thin(32, 48, **one), thin(32, 48, **other)
    target.load_state_dict(source.state_dict())
    assert target.pattern == source.pattern
    assert torch.equal(target.to_dense().weight, source.to_dense().weight.to(target.values.dtype))
    assert target.plan is None or target.plan.pattern(target.words.numpy()) == source.pattern


def test_state_dict__that_does_not_fit__changes_nothing() -> None:
    layer, larger = thin(32, 48, 0.1), thin(32, 48, 0.5)
    before, kept = layer.pattern, layer.values.detach().clone()
    state = larger.state_dict()
    with pytest.raises(SparseOverflowError, match="the plan has slots for"):
        layer.load_state_dict(state)
    small = thin(32, 48, 0.1).state_dict()
    for damage in ({"values": small["values"][:-1]}, {"_extra_state": {**small["_extra_state"], "plan": {"rows": 3}}}):
        with pytest.raises(SparsePatternError, match=r"the state of (the|a sparse) layer"):
            layer.load_state_dict({**small, **damage})
    assert layer.pattern == before
    assert torch.equal(layer.values, kept)


def test_half__of_a_dynamic_layer__plans_it_anew() -> None:
    layer = thin(32, 48)
    before, x = layer.to_dense(), torch.randn(8, 32)
    (layer(x) ** 2).sum().backward()
    (before(x) ** 2).sum().backward()
    layer.half()
    assert layer.plan is not None
    assert layer.plan.dtype == "f16"
    assert layer.values.shape == layer.plan.values_shape
    assert layer.values.grad is not None
    assert before.weight.grad is not None
    given = layer.plan.decode(layer.pattern, layer.values.grad.numpy())
    np.testing.assert_allclose(given, layer.pattern.values_of(before.weight.grad.numpy()), rtol=2e-3, atol=1e-2)
    made = poptorch.inferenceModel(layer)(x.half())
    torch.testing.assert_close(made.float(), before(x).detach(), rtol=1e-2, atol=1e-2)
    assert torch.equal(layer.float().to_dense().weight.half(), before.weight.half())
    assert layer.plan.dtype == "f32"


@pytest.mark.parametrize("dynamic", [False, True])
def test_layer__that_pytorch_exported__still_computes(dynamic: bool) -> None:
    layer, x = thin(32, 48, dynamic=dynamic), torch.randn(8, 32)
    program = torch.export.export(layer, (x,))
    assert torch.equal(program.module()(x), layer(x))
    assert torch.equal(layer(x), layer(x))


def test_attention__that_pytorch_exported__still_computes() -> None:
    layer = sparse.BlockSparseSelfAttention(16, 2, pattern=random_pattern((32, 32), 0.5, (16, 16), seed=4))
    x = torch.randn(1, 32, 16)
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x))
    assert layer(x).sum().item() == layer(x).sum().item()


@pytest.mark.slow
def test_pruning__of_a_trained_network_to_a_tenth__keeps_its_accuracy() -> None:
    centres = 0.6 * torch.randn(10, 64)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(10, (count,))
        return torch.tanh(centres[labels] + torch.randn(count, 64)), labels

    (x, labels), (others, theirs) = draw(4096), draw(2048)
    dense = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(dense.parameters(), lr=2e-3)
    for _ in range(300):
        which = torch.randint(4096, (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(dense(x[which]), labels[which]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def cut(density: float, **more: Any) -> nn.Sequential:
        wide = [isinstance(m, nn.Linear) and m.out_features == 128 for m in dense]
        parts = zip(dense, wide, strict=True)
        return nn.Sequential(
            *(SparseLinear.from_dense(m, density, 4, **more) if w else copy.deepcopy(m) for m, w in parts)  # type: ignore[arg-type]
        )

    def accuracy(net: nn.Module) -> float:
        return float((net(others).argmax(1) == theirs).float().mean())

    model = WithLoss(cut(1.0, dynamic=True, rows=64))
    training = poptorch.trainingModel(model, None, torch.optim.Adam(model.parameters(), lr=1e-3))
    driver = sparse.MagnitudePruning(training, density=0.1, end=160, interval=20)
    for _ in range(240):
        which = torch.randint(4096, (64,))
        training(x[which], labels[which])
        driver.step()
    assert all(layer.density < 0.11 for layer in driver.carrier.layers.values())
    assert accuracy(model.net) > accuracy(dense) - 0.05
    assert accuracy(model.net) > accuracy(cut(0.1)) + 0.02


def test_sparse_layers__in_pytorchs_encoder__run_by_its_fast_path_and_on_the_device() -> None:
    torch.manual_seed(3)
    encoder = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True).eval()
    dense = copy.deepcopy(encoder)
    for name in ("linear1", "linear2"):
        thin = SparseLinear.from_dense(getattr(encoder, name), 0.3)
        setattr(encoder, name, thin)
        setattr(dense, name, thin.to_dense())
    x = torch.randn(2, 6, 32)
    with torch.no_grad():
        expected = dense(x)
        torch.testing.assert_close(encoder(x), expected)
    torch.testing.assert_close(poptorch.inferenceModel(encoder)(x), expected, rtol=1e-4, atol=1e-5)
