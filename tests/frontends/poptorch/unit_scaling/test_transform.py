"""Plain models, unit-scaled: beside the same model written with scaled functions, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.nn.functional as F  # noqa: N812
from torch import nn

from abele import poptorch
from abele.errors import UnsupportedOpError
from abele.frontends.poptorch import unit_scaling as us
from abele.frontends.poptorch.errors import ArgumentError, Error, OptionValueError
from abele.garden.models.gpt2 import Gpt2

pytestmark = pytest.mark.torch


class Plain(nn.Module):
    """Most of what transformers call, by module and by function."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.branch = nn.Linear(16, 16)
        self.up, self.act, self.scores = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 11)

    def forward(self, index: Any, target: Any) -> Any:
        x = self.table(index)
        x = x + self.branch(F.silu(self.norm(x)))
        x = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return F.cross_entropy(self.scores(self.act(self.up(x))).flatten(0, 1), target.flatten())


def by_hand(model: Any, index: Any, target: Any) -> Any:
    x = us.embedding(index, model.table.weight)
    normed = us.silu(us.layer_norm(x, (16,), model.norm.weight, model.norm.bias))
    past = us.scale_backward(x, 0.5**0.5)
    inner = us.scale_backward(normed, 0.5**0.5)
    x = us.residual_add(us.linear(inner, model.branch.weight, model.branch.bias), past)
    x = us.scaled_dot_product_attention(x, x, x, is_causal=True)
    x = us.gelu(us.linear(x, model.up.weight, model.up.bias))
    x = us.linear_readout(x, model.scores.weight, model.scores.bias)
    return us.cross_entropy(x.flatten(0, 1), target.flatten())


def data() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randint(0, 11, (4, 6), generator=generator) for _ in range(2))  # type: ignore[return-value]


def test_unit_scale__plain_model__computes_what_scaled_functions_do() -> None:
    plain = Plain()
    before = copy.deepcopy(plain.state_dict())
    scaled = us.unit_scale(plain, residuals=["branch"], readouts=["scores"])
    loss, other = scaled(*data()), by_hand(copy.deepcopy(scaled.model), *data())
    torch.testing.assert_close(loss, other, rtol=0, atol=0)
    mirror = copy.deepcopy(scaled.model)
    loss.backward()
    by_hand(mirror, *data()).backward()
    for (name, ours), theirs in zip(scaled.model.named_parameters(), mirror.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6, msg=name)
    assert all(torch.equal(before[name], value) for name, value in plain.state_dict().items())
    assert scaled.model.up.weight.std().item() == pytest.approx(1, abs=0.15)


def test_unit_scale__on_the_device__computes_what_pytorch_does() -> None:
    scaled = us.unit_scale(Plain(), residuals=["branch"], readouts=["scores"])
    eager = copy.deepcopy(scaled)
    device = poptorch.trainingModel(scaled, optimizer=poptorch.optim.SGD(scaled.parameters(), lr=0.05))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        expected = eager(*data())
        expected.backward()
        optimizer.step()
        assert device(*data()).item() == pytest.approx(expected.item(), rel=1e-4)
    device.copyWeightsToHost()
    for ours, theirs in zip(scaled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-4)


def test_unit_scale__tied_weights__stay_tied() -> None:
    scaled = us.unit_scale(Gpt2(13, 16, 1, 2, 8), residuals=["*.attention", "*.narrow"], readouts=["head.decode"])
    assert scaled.model.head.decode.weight is scaled.model.embeddings.tokens.weight
    tokens = torch.randint(0, 13, (2, 8))
    scaled(tokens, tokens).backward()
    assert scaled.model.head.decode.weight.grad is not None


@pytest.mark.parametrize("rules", ["library", "demo"])
def test_unit_scale__deep_gpt__has_activations_and_gradients_near_variance_1(rules: str) -> None:
    torch.manual_seed(0)
    model = Gpt2(64, 128, 6, 4, 64)
    scaled = us.unit_scale(model, rules=rules, residuals=["*.attention", "*.narrow"], readouts=["head.decode"])
    seen: dict[str, float] = {}
    for name, part in scaled.model.named_modules():
        if isinstance(part, us.UnitLinear) and not part.readout:
            part.register_forward_hook(lambda _m, _a, made, name=name: seen.__setitem__(name, made.std().item()))
    tokens = torch.randint(0, 64, (8, 64))
    scaled(tokens, tokens).backward()
    assert len(seen) == 24
    # Attention adds values that are alike at all positions, more so in later layers: its results are larger.
    outputs = [seen.pop(name) for name in list(seen) if name.endswith("attention.output")]
    # The geometric constraint leaves a layer that widens four times with a deviation of 4^-1/4.
    assert all(0.65 <= deviation <= 1.45 for deviation in seen.values()), seen
    assert all(0.7 <= deviation <= 5 for deviation in outputs), outputs
    if rules == "library":
        grads = {name: p.grad.std().item() for name, p in scaled.named_parameters() if name.endswith("weight")}
        assert all(0.15 <= deviation <= 3 for deviation in grads.values()), grads


def test_unit_scale__branch_that_is_not_added__is_refused() -> None:
    scaled = us.unit_scale(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), residuals=["0"])
    with pytest.raises(Error, match="added to nothing"):
        scaled(torch.randn(2, 4))


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "BatchNorm1d"),
        (nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4)), "LSTM"),
        (nn.Sequential(nn.GELU()), "no layer"),
        (nn.ReLU(), "no layer"),
        (nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2)), "MultiheadAttention"),
        (nn.Sequential(nn.Conv1d(4, 4, 3, padding_mode="circular")), "circular"),
        (nn.Sequential(nn.Embedding(4, 4, max_norm=1.0)), "changes or weighs rows"),
    ],
)
def test_unit_scale__unknown_module__is_named(module: Any, named: str) -> None:
    with pytest.raises(UnsupportedOpError, match=named):
        us.unit_scale(module)


class WithParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.gain


def test_unit_scale__parameter_of_its_own__is_kept_only_where_named() -> None:
    with pytest.raises(UnsupportedOpError, match="'gain'"):
        us.unit_scale(WithParameter())
    scaled = us.unit_scale(WithParameter(), keep=["gain"])
    assert torch.equal(scaled.model.gain, torch.ones(4))


def test_unit_scale__wrong_arguments__are_refused() -> None:
    plain = Plain()
    with pytest.raises(ArgumentError, match="got int"):
        us.unit_scale(3)  # type: ignore[arg-type]
    with pytest.raises(Error, match="no module fits 'brunch'"):
        us.unit_scale(plain, residuals=["brunch"])
    with pytest.raises(UnsupportedOpError, match="not a Linear"):
        us.unit_scale(plain, readouts=["norm"])
    with pytest.raises(OptionValueError, match="no constraint"):
        us.unit_scale(plain, constraint="mean")
    with pytest.raises(UnsupportedOpError, match="unit-scaled already"):
        us.unit_scale(us.unit_scale(plain))


def test_forward__function_without_factors__is_refused_unless_it_is_asked_for() -> None:
    class Elu(nn.Module):
        def __init__(self, inside: bool) -> None:
            super().__init__()
            self.layer, self.inside = nn.Linear(4, 4), inside

        def forward(self, x: Any) -> Any:
            if self.inside:
                with us.unscaled():
                    return F.elu(self.layer(x))
            return F.elu(self.layer(x))

    with pytest.raises(UnsupportedOpError, match="elu cannot be unit-scaled"):
        us.unit_scale(Elu(False))(torch.randn(2, 4))
    assert us.unit_scale(Elu(True))(torch.randn(2, 4)).shape == (2, 4)


def test_parameter_groups__adam_step__moves_results_as_far_as_that_of_the_plain_model() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(64, 32, bias=False))
    scaled = us.unit_scale(plain)
    plain[0].weight.data = scaled.model[0].weight.detach() / 8
    x, moved = torch.randn(16, 64), []
    plain_group = [{"params": plain.parameters(), "lr": 0.01}]
    for model, groups in ((plain, plain_group), (scaled, us.parameter_groups(scaled, 0.01))):
        before = model(x).detach()
        optimizer = torch.optim.Adam(groups, eps=1e-12)
        model(x).square().sum().backward()
        optimizer.step()
        moved.append(model(x).detach() - before)
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-3, atol=1e-4)


def test_parameter_groups__plain_model__is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="no unit-scaled layer"):
        us.parameter_groups(Plain(), 0.1)
    with pytest.raises(OptionValueError, match="above 0"):
        us.parameter_groups(us.unit_scale(Plain()), 0)
