"""Convolutions, padding and interpolation: values and gradients against PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch
from torch import nn

from abele import poptorch

Function = Callable[..., torch.Tensor]


def trained_once(model: nn.Module, *args: torch.Tensor) -> None:
    """Hold outputs and one step of a model on the device against PyTorch."""
    ours = Lossy(model)
    theirs = copy.deepcopy(ours)
    training = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.01))
    outputs, loss = training(*args)
    training.copyWeightsToHost()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.01)
    wanted, wanted_loss = theirs(*args)
    wanted_loss.backward()
    optimizer.step()
    torch.testing.assert_close(outputs, wanted.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss, wanted_loss.detach(), rtol=1e-4, atol=1e-4)
    for ours_now, wanted_now in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours_now.detach(), wanted_now.detach(), rtol=1e-3, atol=1e-4)


def scaled(function: Function, *shape: int) -> Apply:
    return Apply(function, shape)


CONVOLUTIONS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "transposed 1": (nn.ConvTranspose1d(4, 3, 3, 2, 1, 1), (2, 4, 7)),
    "transposed 2": (nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (0, 1), 2, True, (1, 2)), (2, 4, 5, 6)),
    "transposed 3": (nn.ConvTranspose3d(2, 3, 2, stride=2, padding=1, bias=False), (1, 2, 3, 4, 3)),
    "transposed, far apart": (nn.ConvTranspose2d(2, 3, 2, stride=4, output_padding=3), (1, 2, 3, 4)),
    "transposed, more added than a stride": (nn.ConvTranspose1d(2, 3, 2, output_padding=1, dilation=2), (1, 2, 5)),
    "transposed, much cut": (nn.ConvTranspose2d(2, 3, 3, padding=3), (1, 2, 8, 9)),
    "transposed, one sample": (nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 3, 4)),
    "transposed, depthwise": (nn.ConvTranspose2d(3, 3, 4, 2, 1, groups=3), (2, 3, 5, 5)),
    "same, even": (nn.Conv2d(3, 4, (4, 2), padding="same", dilation=(2, 3)), (2, 3, 6, 7)),
    "valid": (nn.Conv1d(3, 4, 4, padding="valid"), (2, 3, 6)),
    "reflect": (nn.Conv2d(3, 4, 3, padding=(2, 1), padding_mode="reflect"), (2, 3, 6, 7)),
    "replicate": (nn.Conv1d(3, 4, 4, padding="same", padding_mode="replicate"), (2, 3, 8)),
    "circular": (nn.Conv3d(2, 3, 2, padding=1, padding_mode="circular"), (1, 2, 4, 5, 3)),
}


@pytest.mark.filterwarnings("ignore:Using padding=.same.")
@pytest.mark.parametrize(("layer", "shape"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolution__values_and_gradients__equal_pytorch(layer: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(scaled(lambda x: x, *shape), layer)
    check_against_torch(Lossy(model).double(), (torch.randn(shape, dtype=torch.float64),))


def test_convolution__called_by_its_one_operator__equals_pytorch() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        steps: dict[str, Any] = {"bias": None, "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
        plain = torch.convolution(x, x[:1], **steps, transposed=False, output_padding=[0, 0])
        turned = torch.convolution(x, x.reshape(3, 4, 2, 2), **steps, transposed=True, output_padding=[1, 1])
        return plain.sum((2, 3)).sum() * turned

    check_against_torch(Lossy(scaled(both, 2, 3, 4, 2)).double(), (torch.randn(2, 3, 4, 2, dtype=torch.float64),))


FOLDS = {
    "plain": {"kernel_size": 3},
    "padded, apart": {"kernel_size": (2, 3), "padding": (1, 2), "stride": (3, 2)},
    "dilated": {"kernel_size": 2, "dilation": (2, 3), "padding": 1},
    "farther apart than wide": {"kernel_size": 1, "stride": 3},
}


@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (3, 7, 8)])
@pytest.mark.parametrize("settings", FOLDS.values(), ids=FOLDS)
def test_fold_and_unfold__values_and_gradients__equal_pytorch(settings: Any, shape: tuple[int, ...]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        columns = functional.unfold(x, **settings)
        return functional.fold(columns * columns, shape[-2:], **settings) + x

    check_against_torch(Lossy(scaled(function, *shape)).double(), (torch.randn(shape, dtype=torch.float64),))


PADS: dict[str, Function] = {
    "constant": lambda x: functional.pad(x, (1, 2, 0, 3), value=0.5),
    "cut": lambda x: functional.pad(x, (-1, 2, 1, -2)),
    "reflect": lambda x: functional.pad(x, (1, 3, 2, 0), mode="reflect"),
    "reflect 1": lambda x: functional.pad(x[0], (1, 3), mode="reflect"),
    "replicate": lambda x: functional.pad(x, (1, 3, 2, 0), mode="replicate"),
    "replicate, cut": lambda x: functional.pad(x, (-1, 3, 2, -2), mode="replicate"),
    "replicate 3": lambda x: functional.pad(x[None], (1, 3, 2, 0, 0, 1), mode="replicate"),
    "circular": lambda x: functional.pad(x, (1, 4, 2, 0), mode="circular"),
    "layers": lambda x: nn.ReflectionPad2d(2)(x) * nn.CircularPad2d(2)(x) + nn.ZeroPad2d(2)(x),
}


@pytest.mark.parametrize("function", PADS.values(), ids=PADS)
def test_pad__values_and_gradients__equal_pytorch(function: Function) -> None:
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    check_against_torch(Lossy(scaled(function, 2, 3, 5, 4)).double(), (x,))


Sizes = tuple[tuple[int, ...], dict[str, Any]]

INTERPOLATIONS: dict[str, Sizes] = {
    "nearest, whole": ((2, 3, 5, 4), {"scale_factor": (2, 3)}),
    "nearest": ((2, 3, 5, 4), {"size": (7, 3)}),
    "nearest-exact": ((2, 3, 5), {"size": 8, "mode": "nearest-exact"}),
    "nearest 3": ((1, 2, 3, 4, 2), {"scale_factor": 2}),
    "linear": ((2, 3, 16), {"scale_factor": 1.5, "mode": "linear"}),
    "linear, fewer": ((2, 3, 16), {"size": 8, "mode": "linear"}),
    "bilinear": ((2, 3, 8, 6), {"scale_factor": 2, "mode": "bilinear"}),
    "corners": ((2, 3, 8, 6), {"size": (15, 9), "mode": "bilinear", "align_corners": True}),
    "bilinear, any": ((2, 3, 8, 6), {"size": (13, 5), "mode": "bilinear"}),
    "recomputed": ((2, 3, 8, 6), {"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True}),
    "antialias": ((2, 3, 8, 12), {"size": (4, 6), "mode": "bilinear", "antialias": True}),
    "bicubic": ((2, 3, 12, 16), {"size": (18, 32), "mode": "bicubic"}),
    "bicubic, antialias": ((2, 3, 12, 16), {"size": (6, 5), "mode": "bicubic", "antialias": True}),
    "trilinear": ((2, 3, 4, 4, 6), {"scale_factor": 2, "mode": "trilinear"}),
    "area": ((2, 3, 8, 12), {"size": (5, 7), "mode": "area"}),
}


@pytest.mark.parametrize(("shape", "settings"), INTERPOLATIONS.values(), ids=INTERPOLATIONS)
def test_interpolate__values_and_gradients__equal_pytorch(shape: tuple[int, ...], settings: dict[str, Any]) -> None:
    model = scaled(lambda x: functional.interpolate(x, **settings), *shape)
    # The numbers of a matrix are kept in f32 where it is multiplied whole.
    check_against_torch(Lossy(model).double(), (torch.randn(shape, dtype=torch.float64),), rtol=1e-6)


def test_unet__one_step_on_the_device__equals_pytorch() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"), nn.ReLU())
            self.low = nn.Conv2d(8, 8, 3, padding="same")
            self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.last = nn.Conv2d(16, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            down = self.down(x)
            low = self.low(functional.max_pool2d(down, 2))
            smooth = functional.interpolate(low, scale_factor=2, mode="bilinear")
            return self.last(torch.cat([down, self.up(low) + smooth], 1))

    torch.manual_seed(0)
    trained_once(Net(), torch.randn(2, 3, 16, 12))


def test_output__that_shows_a_weight__is_of_before_the_update() -> None:
    trained_once(scaled(lambda x: x.expand(2, 4), 4), torch.ones(4))
