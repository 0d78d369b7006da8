"""Every ATen operator with a lowering: values and gradients against PyTorch in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch
from torch import nn

from abele import poptorch
from abele.machine import systems

Function = Callable[..., torch.Tensor]

ELEMENTWISE: dict[str, Function] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1),
    "elu": functional.elu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "log_sigmoid": functional.logsigmoid,
    "relu6": lambda x: functional.relu6(x * 5),
    "hardtanh": functional.hardtanh,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_min": lambda x: x.clamp(min=0.1),
    "clamp_max": lambda x: torch.clamp_max(x, 0.1) + x.clamp_min(-0.2),
    "clamp_crossed": lambda x: x * x.clamp(min=0.8, max=0.2) + x.clamp(min=0.5, max=-0.5),
    "clamp_whole_bounds": lambda x: x.clamp(-1, 0) + torch.clip(x, max=1),
    "clamp_tensors": lambda x: x.clamp(x.detach() * 0.5 - 0.1, x * x),
    "clamp_one_tensor": lambda x: x.clamp(min=x[:1] * 0.5) + x.clamp(max=torch.zeros(6)),
    "clamp_crossed_tensors": lambda x: x.clamp(torch.full((6,), 0.8), torch.linspace(0, 1, 6)),
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs() + 1),
    "sqrt": lambda x: torch.sqrt(x * x + 1),
    "rsqrt": lambda x: torch.rsqrt(x * x + 1),
    "square": torch.square,
    "abs": torch.abs,
    "neg": torch.neg,
    "reciprocal": lambda x: torch.reciprocal(x + 5),
    "sin_cos": lambda x: torch.sin(x) * torch.cos(x),
    "erf": torch.erf,
    "pow_2": lambda x: x**2,
    "pow_3": lambda x: x**3,
    "pow_half": lambda x: (x * x + 0.5) ** 0.5,
    "scalar_base": lambda x: 2.0**x,
    "arithmetic": lambda x: (3 - x) / 2 + 4 * x - 1,
    "alpha": lambda x: torch.add(x, x * x, alpha=0.5) - torch.sub(x, torch.tanh(x), alpha=2),
    "div_tensor": lambda x: x / (x * x + 2),
    "max_of_two": lambda x: torch.max(x, -x) + torch.min(x, x * 0.5),
    "times_bool": lambda x: x * (x > 0) + (x < 0.5),
    "maximum": lambda x: torch.maximum(x, x * x) + torch.minimum(x, -x * 0.3),
    "where": lambda x: torch.where(x > 0, x, 0.5 * x),
    "masked_fill": lambda x: x.masked_fill(x > 0.3, -2.0),
    "compare": lambda x: (x > 0).float() * x + (x <= 0.5).float(),
    "logical": lambda x: ((x > -0.5) & ~(x > 0.5)).float() * x,
    "in_place": lambda x: (x * 1).mul_(2).add_(1),
    "detach": lambda x: x * x.detach(),
    "constants": lambda x: x + torch.arange(6) * torch.ones(6) + torch.tensor([1.0, 2, 3, 4, 5, 6]),
    "like": lambda x: x * torch.full_like(x, 2.0) + torch.zeros_like(x) + torch.ones_like(x),
}

SHAPES: dict[str, Function] = {
    "view": lambda x: x.view(3, 8).tanh(),
    "flatten": lambda x: x.flatten().tanh(),
    "permute": lambda x: x.reshape(2, 3, 4).permute(2, 0, 1).tanh(),
    "transpose": lambda x: x.t().tanh() + x.transpose(0, 1),
    "reversed_dims": lambda x: x.reshape(2, 3, 4).permute(2, 1, 0).tanh() * x.view(4, 3, 2),
    "numpy_T": lambda x: torch.ops.aten.numpy_T(x.reshape(2, 3, 1, 4)).tanh(),
    "mT": lambda x: x.reshape(2, 3, 4).mT.tanh(),
    "adjoint": lambda x: x.H.tanh() * x.adjoint(),
    "movedim": lambda x: torch.movedim(x.reshape(2, 3, 4), (0, -1), (-1, 0)).tanh(),
    "swapped": lambda x: x.reshape(2, 3, 4).swapaxes(0, -1).tanh() * x.reshape(4, 3, 2).swapdims(-2, -1).mT,
    "negative_dims": lambda x: x.reshape(2, 3, 4).permute(-1, 0, -2).transpose(-3, -1).tanh(),
    "scalar_of_matrix": lambda x: (x[3] * x[1, 1]).sum() + (x[0, 0] * x[:, 2]).mean(),
    "squeeze": lambda x: x.unsqueeze(1).tanh().squeeze(1),
    "expand": lambda x: x.unsqueeze(0).expand(3, 4, 6) * torch.arange(1.0, 4).view(3, 1, 1),
    "repeat": lambda x: x.repeat(2, 3).tanh(),
    "tile_of_more_or_fewer_dims": lambda x: x.tile(2).tanh().sum() + x.tile(2, 1, 3).tanh(),
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    "cat": lambda x: torch.cat([x, x[:, 1:3] * 2, x], 1),
    "stack": lambda x: torch.stack([x, x * 2], 1).tanh(),
    "slice": lambda x: x[1:3, 2:] * 2,
    "slice_step": lambda x: x.detach()[:, ::2] + x[:, :3],
    "flip": lambda x: x.flip(1) * x + x.flip(0, -1).tanh(),
    "flip_lr_ud": lambda x: torch.fliplr(x) * torch.flipud(x),
    "roll": lambda x: x.roll(2, 1) * x + x.roll((1, -1), (0, 1)).tanh(),
    "roll_flat": lambda x: x.roll(5) * x,
    "chosen": lambda x: x[:, torch.tensor([1, 2, 3, 0, 5, 5, 4])].tanh() + x[:, torch.tensor([0, 1, 1, 1, 2, 4, 3])],
    "chosen_in_order": lambda x: x[:, torch.arange(5, 0, -2)] * x.index_select(1, torch.tensor([2, 0, 1])),
    "slice_steps": lambda x: x[:, 1::3].tanh() * x[:, 2:5:2] + x[:, ::5],
    "select": lambda x: x[2] * x[:, 1].sum(),
    "split": lambda x: torch.split(x, 2, 1)[1] * torch.split(x, [1, 3], 0)[1][:1, :2].sum(),
    "chunk": lambda x: x.chunk(3, 1)[2].tanh(),
    "unbind": lambda x: x.unbind(0)[1] * x.unbind(1)[0].sum(),
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1), value=3.0).tanh(),
    "assign_slice": lambda x: _assigned(x),
}

REDUCTIONS: dict[str, Function] = {
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1, keepdim=True) * x,
    "mean": lambda x: x.mean(),
    "mean_dims": lambda x: x.view(2, 2, 6).mean((0, 2)),
    "max": lambda x: x.max(),
    "amax": lambda x: x.amax(1) - x.amin(0).sum(),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(),
    "var_biased": lambda x: torch.var(x, 1, False) + torch.std(x, 0, unbiased=True).sum(),
    "var_correction": lambda x: torch.var(x, dim=1, correction=2, keepdim=True) + torch.std(x, unbiased=False),
    "var_mean": lambda x: sum(torch.var_mean(x, 1)),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "glu": lambda x: functional.glu(x, 1),
    "instance_norm": lambda x: functional.instance_norm(x.view(2, 2, 6)) * x.view(2, 2, 6),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "softmax": lambda x: functional.softmax(x, 1),
    "softmax_first": lambda x: functional.softmax(x, 0),
    "log_softmax": lambda x: functional.log_softmax(x, -1),
    "cumsum": lambda x: x.cumsum(1).tanh(),
    "matmul": lambda x: x @ x.t(),
    "vectors": lambda x: (x @ x[0]) @ x[:, 1],
    "bmm": lambda x: torch.bmm(x.view(2, 2, 6), x.view(2, 6, 2)),
    "batched_matmul": lambda x: torch.matmul(x.view(2, 1, 2, 6), x.view(1, 2, 6, 2)),
    "addmm": lambda x: torch.addmm(x[:, :4], x, x.t(), beta=0.5, alpha=2.0),
    "layer_norm": lambda x: functional.layer_norm(x, (6,)),
    "group_norm": lambda x: functional.group_norm(x.view(2, 4, 3), 2),
}


def _assigned(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[:, 1:3] = y[:, 3:5] * 2
    y[2] = 0.5
    return y.tanh()


@pytest.mark.parametrize("name", [*ELEMENTWISE, *SHAPES, *REDUCTIONS])
def test_operator__values_and_gradients__equal_pytorch(name: str) -> None:
    function = (ELEMENTWISE | SHAPES | REDUCTIONS)[name]
    torch.manual_seed(3)
    model = Lossy(Apply(function, (4, 6)))
    check_against_torch(model, (torch.randn(4, 6),))


def on_few_tiles(function: Function, x: torch.Tensor) -> torch.Tensor:
    opts = poptorch.Options()
    opts.Abele.system(systems.bow_2000().evolve(ipu={"num_tiles": 4}))
    result: torch.Tensor = poptorch.inferenceModel(function, opts)(x)
    return result


def test_right_shift__of_bytes_without_sign__takes_zeros_from_above() -> None:
    x = torch.tensor([0, 1, 127, 128, 255], dtype=torch.uint8)
    assert torch.equal(
        on_few_tiles(lambda x: torch.stack([x >> 1, x >> 7, x << 1]), x), torch.stack([x >> 1, x >> 7, x << 1])
    )


def test_result__without_elements__is_refused() -> None:
    with pytest.raises(poptorch.Error, match=r"Zero-sized tensors are unsupported \(Got shape \[0, 3\]\)"):
        on_few_tiles(lambda x: x[9:], torch.zeros(2, 3))


class Last(nn.Module):
    """Output of a recurrent layer for the last step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0][:, -1]


def _attention(**settings: object) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        heads = x.view(2, 2, 6)
        return functional.scaled_dot_product_attention(heads, heads * 0.5, heads.tanh(), **settings)

    return function


ATTENTION: dict[str, Function] = {
    "plain": _attention(),
    "causal": _attention(is_causal=True),
    "scaled": _attention(scale=0.3),
    "bool_mask": _attention(attn_mask=torch.tensor([[True, False], [True, True]])),
    "float_mask": _attention(attn_mask=torch.tensor([[0.5, -1.0], [0.0, 2.0]])),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention__values_and_gradients__equal_pytorch(name: str) -> None:
    torch.manual_seed(6)
    check_against_torch(Lossy(Apply(ATTENTION[name], (4, 6))), (torch.randn(4, 6),), rtol=1e-7)


NO_KEY = torch.tensor([[True, False], [False, False]])


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("mask", [NO_KEY, torch.zeros(2, 2).masked_fill(~NO_KEY, -math.inf)])
def test_attention__mask_hides_all_keys__gives_zeros_and_no_gradient(mask: torch.Tensor, is_known: bool) -> None:
    torch.manual_seed(6)
    if is_known:
        check_against_torch(Lossy(Apply(_attention(attn_mask=mask), (4, 6))), (torch.randn(4, 6),), rtol=1e-7)
        return
    function = lambda x, given: _attention(attn_mask=given)(x)  # noqa: E731
    check_against_torch(Lossy(Apply(function, (4, 6))), (torch.randn(4, 6), mask), rtol=1e-7)


def test_attention__known_mask_leaves_every_query_a_key__needs_no_safe_softmax() -> None:
    captured = check_against_torch(Lossy(Apply(ATTENTION["bool_mask"], (4, 6))), (torch.randn(4, 6),), rtol=1e-7)
    kinds = {op.kind for op in captured.net.ops}
    assert "softmax" in kinds
    assert "safe_softmax" not in kinds


@pytest.mark.parametrize(("heads", "causal"), [(1, False), (2, True), (4, True)])
def test_attention__query_heads_share_keys__equals_pytorch(heads: int, causal: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        queries, keys = x.view(2, 4, 3, 5), x.view(2, 4, 3, 5)[:, :heads].sin()
        return functional.scaled_dot_product_attention(queries, keys, keys * 0.5, is_causal=causal, enable_gqa=True)

    torch.manual_seed(6)
    check_against_torch(Lossy(Apply(function, (8, 15))), (torch.randn(8, 15),), rtol=1e-7)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "linear_no_bias": (lambda: nn.Linear(6, 5, bias=False), (4, 6)),
    "linear_3d": (lambda: nn.Linear(6, 5), (2, 3, 6)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3), (2, 3, 7, 6)),
    "conv2d_padded": (lambda: nn.Conv2d(3, 4, 3, padding=1, bias=False), (2, 3, 5, 5)),
    "conv2d_strided": (lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)), (2, 2, 8, 7)),
    "conv2d_dilated": (lambda: nn.Conv2d(2, 3, 3, dilation=2, padding="same"), (1, 2, 8, 8)),
    "conv2d_grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), (2, 3, 9)),
    "max_pool": (lambda: nn.Sequential(nn.Conv2d(2, 3, 1), nn.MaxPool2d(2)), (2, 2, 6, 6)),
    "max_pool_overlapping": (lambda: nn.Sequential(nn.Conv2d(2, 3, 1), nn.MaxPool2d(3, 2, 1)), (2, 2, 7, 6)),
    "max_pool_ceil": (lambda: nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(2, ceil_mode=True)), (1, 1, 5, 5)),
    "avg_pool": (lambda: nn.Sequential(nn.Conv2d(2, 3, 1), nn.AvgPool2d(2)), (2, 2, 6, 6)),
    "avg_pool_padded": (lambda: nn.Sequential(nn.Conv2d(1, 2, 1), nn.AvgPool2d(3, 2, 1)), (1, 1, 6, 6)),
    "adaptive_avg_pool": (lambda: nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(2)), (1, 1, 6, 4)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True), (2, 3, 8)),
    "transformer_eval": (lambda: nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval(), (2, 3, 8)),
    "lstm": (lambda: Last(nn.LSTM(4, 6, batch_first=True)), (2, 3, 4)),
    "gru": (lambda: Last(nn.GRU(4, 6, batch_first=True)), (2, 3, 4)),
    "instance_norm": (lambda: nn.InstanceNorm1d(4, affine=True), (3, 4, 5)),
    "batch_norm_untracked": (lambda: nn.BatchNorm1d(4, track_running_stats=False), (3, 4, 5)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), (4, 6)),
    "layer_norm": (lambda: nn.LayerNorm(6), (4, 6)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "batch_norm1d": (lambda: nn.BatchNorm1d(6), (5, 6)),
    "batch_norm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer__values_and_gradients__equal_pytorch(name: str) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(4)
    check_against_torch(Lossy(make()), (torch.randn(shape),))


LOSSES: dict[str, tuple[Function, Callable[[], torch.Tensor]]] = {
    "mse": (functional.mse_loss, lambda: torch.randn(5, 4)),
    "mse_sum": (lambda x, y: functional.mse_loss(x, y, reduction="sum"), lambda: torch.randn(5, 4)),
    "l1": (functional.l1_loss, lambda: torch.randn(5, 4)),
    "smooth_l1": (functional.smooth_l1_loss, lambda: torch.randn(5, 4)),
    "huber": (lambda x, y: functional.huber_loss(x, y, delta=0.5), lambda: torch.randn(5, 4)),
    "cross_entropy": (functional.cross_entropy, lambda: torch.randint(0, 4, (5,))),
    "cross_entropy_sum": (
        lambda x, y: functional.cross_entropy(x, y, reduction="sum"),
        lambda: torch.randint(0, 4, (5,)),
    ),
    "cross_entropy_soft": (functional.cross_entropy, lambda: torch.softmax(torch.randn(5, 4), 1)),
    "cross_entropy_ignored": (functional.cross_entropy, lambda: torch.tensor([0, -100, 3, -100, 2])),
    "cross_entropy_index": (
        lambda x, y: functional.cross_entropy(x, y, ignore_index=1),
        lambda: torch.tensor([0, 1, 3, 1, 2]),
    ),
    "nll": (lambda x, y: functional.nll_loss(functional.log_softmax(x, 1), y), lambda: torch.randint(0, 4, (5,))),
    "bce_logits": (functional.binary_cross_entropy_with_logits, lambda: torch.rand(5, 4)),
    "bce_logits_weighted": (
        lambda x, y: functional.binary_cross_entropy_with_logits(
            x, y, weight=torch.linspace(0.5, 1, 4), pos_weight=torch.linspace(1, 3, 4)
        ),
        lambda: torch.rand(5, 4),
    ),
    "bce": (lambda x, y: functional.binary_cross_entropy(torch.sigmoid(x), y), lambda: torch.rand(5, 4)),
    "kl": (
        lambda x, y: functional.kl_div(functional.log_softmax(x, 1), y, reduction="sum"),
        lambda: torch.softmax(torch.randn(5, 4), 1),
    ),
}


class WithTarget(nn.Module):
    def __init__(self, loss: Function) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 20).reshape(5, 4))
        self.loss = loss

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(x * self.scale, target)


@pytest.mark.parametrize("name", LOSSES)
def test_loss__values_and_gradients__equal_pytorch(name: str) -> None:
    loss, target = LOSSES[name]
    torch.manual_seed(5)
    check_against_torch(WithTarget(loss), (torch.randn(5, 4), target()), rtol=1e-7)
