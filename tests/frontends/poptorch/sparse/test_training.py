"""Training that stays sparse: invariants of what is dropped and grown, host and device alike, checkpoints."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from abele import poptorch
from abele.errors import InvalidOptionError
from abele.frontends.poptorch.sparse import SparseLinear
from abele.frontends.poptorch.sparse.patterns import places_of
from abele.poptorch import sparse
from support.examples import examples


class Net(nn.Module):
    """A dynamic layer, a dense one, and a loss."""

    def __init__(self, block: int, density: float = 0.3) -> None:
        super().__init__()
        self.thin = SparseLinear(32, 48, density=density, block=block, dynamic=True, rows=8)
        self.head = nn.Linear(48, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        scores = self.head(torch.tanh(self.thin(x)))
        return scores, nn.functional.cross_entropy(scores, labels)


def batch(rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 32), torch.randint(5, (rows,))


def step(net: nn.Module, optimizer: torch.optim.Optimizer, given: tuple[torch.Tensor, torch.Tensor]) -> float:
    optimizer.zero_grad()
    _, loss = net(*given)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize("method", [sparse.RigL, sparse.SET])
@examples(6)
@given(
    block=st.sampled_from([4, 1, 8, 16]),
    fraction=st.floats(0, 1),
    density=st.sampled_from([0.3, 0.05, 1.0]),  # Each has a plan, which takes most of the time.
    seed=st.integers(0, 9),
)
def test_drop_and_grow__any_layer__keeps_its_invariants(
    method: type[sparse.RigL | sparse.SET], block: int, fraction: float, density: float, seed: int
) -> None:
    torch.manual_seed(seed)
    net = Net(block, density)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    driver = method(net, optimizer, interval=1, end=4, fraction=fraction)
    held = net.thin.pattern.num_blocks
    for _ in range(4):
        given = batch()
        step(net, optimizer, given)
        before = net.thin.to_dense().weight.detach().numpy().copy()
        driver.step(*given)
        (change,) = driver.changes
        kept = np.setdiff1d(places_of(change.before), change.dropped)
        assert net.thin.pattern.num_blocks == held
        assert not np.intersect1d(change.grown, kept).size
        assert len(change.grown) == len(change.dropped)
        if method is sparse.SET:
            assert not np.intersect1d(change.grown, places_of(change.before)).size
        is_grown = np.isin(places_of(net.thin.pattern), change.grown)
        for tensor in (
            net.thin.values,
            *(s for s in optimizer.state[net.thin.values].values() if s.shape == net.thin.values.shape),
        ):
            assert net.thin.plan is not None
            assert not net.thin.plan.decode(net.thin.pattern, tensor.detach().numpy())[is_grown].any()
        after = net.thin.to_dense().weight.detach().numpy()
        assert ((after == before) | (after == 0)).all()


@pytest.mark.parametrize("block", [1, 8])
def test_rigl__grows_where_dense_gradients_are_largest(block: int) -> None:
    net = Net(block)
    given = batch()
    dense = net.thin.to_dense()
    nn.functional.cross_entropy(net.head(torch.tanh(dense(given[0]))), given[1]).backward()  # type: ignore[no-untyped-call]
    assert dense.weight.grad is not None
    sums = np.abs(dense.weight.grad.numpy().astype(np.float64)).reshape(48 // block, block, 32 // block, block)
    driver = sparse.RigL(net, interval=1, end=100, fraction=0.5)
    np.testing.assert_allclose(driver.gradients(*given)["thin"], dense.weight.grad.numpy(), rtol=1e-4, atol=1e-7)
    driver.step(*given)
    (change,) = driver.changes
    scores = sums.sum((1, 3)).reshape(-1)
    kept = np.setdiff1d(places_of(change.before), change.dropped)
    others = np.setdiff1d(np.arange(scores.size), np.concatenate([kept, change.grown]))
    assert scores[change.grown].min() >= scores[others].max() - 1e-9


@pytest.mark.parametrize(
    ("method", "more"),
    [
        (sparse.RigL, {"interval": 2, "end": 8}),
        pytest.param(sparse.SET, {"interval": 2, "end": 8}, marks=pytest.mark.slow),
        pytest.param(sparse.MagnitudePruning, {"interval": 2, "end": 6, "density": 0.1}, marks=pytest.mark.slow),
        pytest.param(sparse.NofM, {"at": 2}, marks=pytest.mark.slow),
        pytest.param(sparse.Fixed, {}, marks=pytest.mark.slow),
    ],
)
def test_training__on_the_device__changes_patterns_as_on_the_host_and_compiles_once(
    method: Any, more: dict[str, Any]
) -> None:
    net = Net(1 if method is sparse.NofM else 4)
    twin = copy.deepcopy(net)
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    training = poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters(), lr=0.01))
    tester = poptorch.inferenceModel(net)
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.01)
    driver, other = method(training, **more), method(twin, optimizer, **more)
    changed, compiled = 0, None
    for _ in range(6):
        given = batch(16)
        training(*given)
        compiled = compiled or (training._compiled, tester._compiled)
        changed += driver.step(*given)
        step(twin, optimizer, given)
        other.step(*given)
        assert net.thin.pattern == twin.thin.pattern
        torch.testing.assert_close(net.thin.values.detach(), twin.thin.values.detach(), rtol=1e-3, atol=1e-5)
        shown, _ = tester(*given)
        torch.testing.assert_close(shown, twin(*given)[0].detach(), rtol=1e-3, atol=1e-4)
        assert training._compiled is compiled[0]
    assert changed == {"Fixed": 0, "NofM": 1}.get(method.__name__, 3)


def test_rigl__its_program_of_gradients__is_compiled_once() -> None:
    net = Net(4)
    training = poptorch.trainingModel(net, None, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    driver = sparse.RigL(training, interval=1, end=9)
    found = set()
    for _ in range(3):
        given = batch()
        training(*given)
        driver.step(*given)
        program: Any = driver._program
        found.add(id(program._compiled))
    assert len(found) == 1


@pytest.mark.parametrize("block", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_pruning__densities_fall_to_the_last_one(block: int) -> None:
    net = Net(block, 1.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    driver = sparse.MagnitudePruning(net, optimizer, density=0.125, start=2, end=9, interval=2)
    held = [net.thin.pattern]
    for _ in range(12):
        given = batch()
        step(net, optimizer, given)
        driver.step()
        held.append(net.thin.pattern)
    assert all(set(places_of(b)) <= set(places_of(a)) for a, b in itertools.pairwise(held))
    assert held[1].density == 1
    assert net.thin.density == 0.125
    assert (
        not net.thin.to_dense()
        .weight.detach()
        .numpy()[~np.kron(net.thin.pattern.mask, np.ones((block, block))).astype(bool)]
        .any()
    )


def test_n_of_m__holds_the_largest_of_each_group() -> None:
    net = Net(1, 1.0)
    before = net.thin.to_dense().weight.detach().numpy()
    driver = sparse.NofM(net, n=2, m=4)
    assert driver.step()
    groups = net.thin.pattern.mask.reshape(48, 8, 4)
    assert (groups.sum(2) == 2).all()
    sizes = np.abs(before).reshape(48, 8, 4)
    assert (np.where(groups, sizes, np.inf).min(2) >= np.where(groups, -np.inf, sizes).max(2)).all()


def test_checkpoint__in_a_new_program__goes_on_the_same(tmp_path: Path) -> None:
    given = [batch() for _ in range(6)]

    def begin() -> tuple[poptorch.PoplarExecutor, sparse.SET, SparseLinear]:
        net = Net(4)
        optimizer = poptorch.optim.Adam(net.parameters(), lr=0.01)
        training = poptorch.trainingModel(net, None, optimizer)
        return training, sparse.SET(training, interval=2, end=20), net.thin

    training, driver, thin = begin()
    for part in given[:3]:
        training(*part)
        driver.step(*part)
    poptorch.save_checkpoint(tmp_path / "last.pt", training, sparse=driver.state_dict())
    losses = []
    for part in given[3:]:
        losses.append(float(training(*part)[1]))
        driver.step(*part)
    again, resumed, other = begin()
    assert other.pattern != thin.pattern
    resumed.load_state_dict(poptorch.load_checkpoint(tmp_path / "last.pt", again)["sparse"])
    for part, loss in zip(given[3:], losses, strict=True):
        assert float(again(*part)[1]) == loss
        resumed.step(*part)
    assert other.pattern == thin.pattern


def test_driver__wrong_input__is_named() -> None:
    net = Net(4)
    for make, match in (
        (lambda: sparse.RigL(nn.Linear(3, 3), end=3), "no sparse layer"),
        (lambda: sparse.SET(SparseLinear(8, 8, density=0.5), end=3), "static patterns"),
        (lambda: sparse.SET(net, end=3, fraction=1.5), "between 0 and 1, got 1.5"),
        (lambda: sparse.SET(net, end=3, interval=0), "interval is a whole number from 1"),
        (lambda: sparse.SET(net, end=3, start=4), "from 4 to 3"),
        (lambda: sparse.MagnitudePruning(net, density=0, end=3), "above 0"),
        (lambda: sparse.NofM(net), "of single weights"),
        (lambda: sparse.NofM(Net(1), n=5), "between 1 and 4"),
        (lambda: sparse.RigL(net, interval=1, end=3).step(), "gradients of a batch"),
    ):
        with pytest.raises(InvalidOptionError, match=match):
            make()


def test_rigl__gradients_that_are_no_numbers__grow_other_weights() -> None:
    net = Net(4)
    driver = sparse.RigL(net, interval=1, end=9)
    x, labels = batch()
    x[0, 3] = torch.nan
    driver.step(x, labels)
    assert net.thin.pattern.num_blocks == driver.changes[0].before.num_blocks
    assert torch.isfinite(net.thin.values).all()
