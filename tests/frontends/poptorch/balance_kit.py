"""Operators at sizes of networks, each as a model that trains its operands, for their balance over tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from abele import poptorch

Function = Callable[..., Any]
Case = tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]


class Trained(nn.Module):
    """A function or layer of operands that are learnt; the squares of what it gives are the loss."""

    def __init__(self, function: Function, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.operands = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        made = self.function(*self.operands, *given)
        tensors = [made] if isinstance(made, torch.Tensor) else [t for t in made if isinstance(t, torch.Tensor)]
        return poptorch.identity_loss(sum((t * t).sum() for t in tensors if t.is_floating_point()), "none")


class Packed(nn.Module):
    """A recurrent layer over sequences of the lengths given."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(64, 128, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=x.shape[1])
        made: torch.Tensor = padded[0]
        return made


CASES: dict[str, Case] = {}


def _of(name: str, function: Function, *shapes: tuple[int, ...], given: tuple[torch.Tensor, ...] = ()) -> None:
    CASES[name] = (lambda: Trained(function, *shapes), given)


def _layer(name: str, make: Callable[[], nn.Module], *shapes: tuple[int, ...], given: Any = ()) -> None:
    CASES[name] = (lambda: Trained(make(), *shapes), given)


def _only(function: Function, place: int = 0) -> Function:
    return lambda *args: function(*args)[place]


IMAGE, SMALL, VOLUME = (8, 64, 56, 56), (8, 32, 32, 32), (2, 16, 16, 16, 16)
HEADS, SHARED = (4, 8, 128, 64), (4, 2, 128, 64)

_layer("transposed convolution", lambda: nn.ConvTranspose2d(64, 32, 4, 2, 1), (8, 64, 28, 28))
_layer("transposed convolution 3d", lambda: nn.ConvTranspose3d(16, 16, 3, 2, 1, 1), (2, 16, 12, 12, 12))
_layer("transposed depthwise", lambda: nn.ConvTranspose2d(64, 64, 4, 2, 1, groups=64), (8, 64, 28, 28))

_of("max pool", lambda x: functional.max_pool2d(x, 3, 2, 1), IMAGE)
_of("max pool 1d", lambda x: functional.max_pool1d(x, 3, 2), (16, 64, 1000))
_of("max pool 3d", lambda x: functional.max_pool3d(x, 2), VOLUME)
_of("max pool with places", lambda x: functional.max_pool2d(x, 2, return_indices=True)[0], SMALL)
_of("average pool", lambda x: functional.avg_pool2d(x, 3, 2, 1), IMAGE)
_of("average pool of what is inside", lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), IMAGE)
_of("average pool 3d", lambda x: functional.avg_pool3d(x, 2), VOLUME)
_of("power pool", lambda x: functional.lp_pool2d(x.abs() + 1, 2, 2), SMALL)
_of("adaptive average, even", lambda x: functional.adaptive_avg_pool2d(x, 7), IMAGE)
_of("adaptive average, uneven", lambda x: functional.adaptive_avg_pool2d(x, 5), SMALL)
_of("adaptive average, one", lambda x: functional.adaptive_avg_pool2d(x, 1), IMAGE)
_of("adaptive maximum, even", lambda x: functional.adaptive_max_pool2d(x, 7), IMAGE)
_of("adaptive maximum, uneven", lambda x: functional.adaptive_max_pool2d(x, 5), SMALL)
_of("unpool", lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2), (4, 8, 32, 32))

for _mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
    _of(f"{_mode} twice as large", lambda x, m=_mode: functional.interpolate(x, scale_factor=2, mode=m), SMALL)
    _of(f"{_mode} odd", lambda x, m=_mode: functional.interpolate(x, size=(45, 61), mode=m), SMALL)
_of("linear", lambda x: functional.interpolate(x, scale_factor=2, mode="linear"), (8, 32, 1000))
_of("trilinear", lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"), VOLUME)
_of("corners", lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), SMALL)
_of("antialiased", lambda x: functional.interpolate(x, size=(20, 20), mode="bilinear", antialias=True), SMALL)
for _mode in ("bilinear", "nearest", "bicubic"):
    _of(
        f"grid sample, {_mode}",
        lambda x, grid, m=_mode: functional.grid_sample(x, grid.tanh(), mode=m, align_corners=False),
        (4, 16, 32, 32), (4, 32, 32, 2),
    )  # fmt: skip
_of(
    "grid sample, reflected",
    lambda x, grid: functional.grid_sample(x, grid.tanh(), padding_mode="reflection", align_corners=False),
    (4, 16, 32, 32), (4, 32, 32, 2),
)  # fmt: skip
_of("grid sample 3d", lambda x, grid: functional.grid_sample(x, grid.tanh(), align_corners=False),
    (2, 8, 12, 12, 12), (2, 12, 12, 12, 3))  # fmt: skip
_of("affine grid", lambda turn: functional.affine_grid(turn, [8, 3, 64, 64], align_corners=False), (8, 2, 3))
_of("unfold", lambda x: functional.unfold(x, 3, padding=1), (8, 32, 28, 28))
_of("fold", lambda x: functional.fold(x, (28, 28), 3, padding=1), (8, 288, 784))
for _mode in ("constant", "reflect", "replicate", "circular"):
    _of(f"{_mode} pad", lambda x, m=_mode: functional.pad(x, (3, 3, 3, 3), mode=m), (8, 32, 56, 56))

_of(
    "ctc",
    lambda x, labels: functional.ctc_loss(x.log_softmax(-1), labels, torch.full((16,), 100), torch.full((16,), 20)),
    (100, 16, 40), given=(torch.randint(1, 40, (16, 20)),),
)  # fmt: skip
_of("cross entropy, 32 k", functional.cross_entropy, (64, 32000), given=(torch.randint(0, 32000, (64,)),))
_of(
    "cross entropy, smoothed", lambda x, t: functional.cross_entropy(x, t, label_smoothing=0.1), (16, 50257),
    given=(torch.randint(0, 50257, (16,)),),
)  # fmt: skip
_of("nll, 32 k", functional.nll_loss, (64, 32000), given=(torch.randint(0, 32000, (64,)),))
_of("cross entropy of pixels", functional.cross_entropy, (4, 21, 64, 64), given=(torch.randint(0, 21, (4, 64, 64)),))
_of("binary cross entropy", functional.binary_cross_entropy_with_logits, (256, 1000), given=(torch.rand(256, 1000),))
_of("margins", functional.multi_margin_loss, (256, 1000), given=(torch.randint(0, 1000, (256,)),))
_of("triplets", functional.triplet_margin_loss, (256, 256), (256, 256), (256, 256))
_of("cosine", functional.cosine_similarity, (512, 256), (512, 256))

_of("layer norm", lambda x: functional.layer_norm(x, (512,)), (8, 128, 512))
_of("root mean square norm", lambda x: functional.rms_norm(x, (512,)), (8, 128, 512))
_of("group norm", lambda x: functional.group_norm(x, 8), IMAGE)
_of("instance norm", lambda x: functional.instance_norm(x), IMAGE)
_layer("batch norm", lambda: nn.BatchNorm2d(64), IMAGE)
_of("response norm", lambda x: functional.local_response_norm(x, 5), IMAGE)
_of("norm of rows", lambda x: torch.linalg.vector_norm(x, dim=-1), (1024, 512))
_of("norm of all", torch.linalg.norm, (1024, 512))
_of("normalised rows", lambda x: functional.normalize(x, dim=-1), (1024, 512))
_of("distances", torch.cdist, (256, 64), (256, 64))
_of("distances of sums", lambda a, b: torch.cdist(a, b, p=1.0), (256, 64), (256, 64))
_of("distances of pairs", functional.pdist, (128, 64))

_of("attention", functional.scaled_dot_product_attention, HEADS, HEADS, HEADS)
_of("attention, causal", lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), *[HEADS] * 3)
_of("attention, bools", functional.scaled_dot_product_attention, HEADS, HEADS, HEADS,
    given=(torch.rand(4, 1, 128, 128) > 0.3,))  # fmt: skip
_of("attention, numbers", functional.scaled_dot_product_attention, HEADS, HEADS, HEADS,
    given=(torch.randn(4, 1, 128, 128),))  # fmt: skip
_of("attention, grouped", lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    HEADS, SHARED, SHARED)  # fmt: skip

for _kind in (nn.LSTM, nn.GRU, nn.RNN):
    _layer(_kind.__name__, lambda k=_kind: k(128, 256), (32, 32, 128))
    _layer(f"{_kind.__name__}, deep, both ways", lambda k=_kind: k(64, 128, 2, bidirectional=True), (16, 16, 64))
    _layer(f"{_kind.__name__}, lengths", lambda k=_kind: Packed(k), (16, 16, 64), given=(torch.arange(1, 17),))
_layer("LSTM, projected", lambda: nn.LSTM(64, 128, proj_size=32), (16, 16, 64))
_layer("RNN of relu", lambda: nn.RNN(128, 256, nonlinearity="relu"), (32, 32, 128))


def _definite(a: torch.Tensor) -> torch.Tensor:
    return a @ a.mT + 200 * torch.eye(a.shape[-1])


MATRIX: dict[str, tuple[Function, int]] = {
    "cholesky": (lambda a: torch.linalg.cholesky(_definite(a)), 1),
    "lu": (lambda a: torch.linalg.lu(a)[1:], 1),
    "qr": (torch.linalg.qr, 1),
    "solve": (torch.linalg.solve, 2),
    "inverse": (torch.linalg.inv, 1),
    "determinant": (_only(torch.linalg.slogdet, 1), 1),
    "triangular solve": (
        lambda a, b: torch.linalg.solve_triangular(a + 20 * torch.eye(a.shape[-1]), b, upper=True), 2
    ),
    "svd": (torch.linalg.svd, 1),
    "eigh": (lambda a: torch.linalg.eigh(a + a.mT), 1),
    "matrix exponential": (lambda a: torch.linalg.matrix_exp(a * 0.01), 1),
}  # fmt: skip
for _name, (_function, _count) in MATRIX.items():
    _of(f"{_name}, one", _function, *[(128, 128)] * _count)
    _of(f"{_name}, many", _function, *[(64, 32, 32)] * _count)
