"""The three training steps of the speed bars, as host kernels and as PyTorch modules with the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from kernel_tape import LEAK, Tape, Value
from torch import nn

from abele.numerics import i32, u32


@dataclass
class Model:
    """A training step in both forms.

    Attributes:
        name: Name of the model.
        batch: Samples per step.
        tape: The step as kernels.
        inputs: Buffers of input, target and loss.
        module: The step's model in PyTorch.
        criterion: Its loss.
        rate: Learning rate of Adam.
        data: Input and target.
    """

    name: str
    batch: int
    tape: Tape
    inputs: tuple[Value, Value, Value]
    module: nn.Module
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    rate: float
    data: tuple[np.ndarray, np.ndarray]


class NonLocal(nn.Module):
    """Embedded-Gaussian non-local block."""

    def __init__(self) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Conv2d(64, 32, 1) for _ in range(3))
        self.out = nn.Conv2d(32, 64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, _, h, w = x.shape
        theta, phi, g = (f(x).flatten(2) for f in (self.theta, self.phi, self.g))
        p = torch.softmax(theta.transpose(1, 2) @ phi, -1)
        y = (g @ p.transpose(1, 2)).reshape(b, 32, h, w)
        return x + self.out(y)


def braggnn(batch: int = 512) -> Model:
    tape = Tape()
    x, t, loss = _ends(tape, (batch, 1, 11, 11), (batch, 2))
    a = tape.conv(x, 64, 3, "0")
    theta, phi, g = (tape.conv(a, 32, 1, f"1.{n}") for n in ("theta", "phi", "g"))
    s = tape.product(theta, phi, (batch, 81, 81), "bci,bcj->bij", "similarity")
    p = tape.softmax(s, "softmax")
    y = tape.product(p, g, (batch, 32, 9, 9), "bij,bcj->bci", "attend")
    h = tape.leaky(tape.add(a, tape.conv(y, 64, 1, "1.out"), "residual"), LEAK, "leaky1")
    h = tape.leaky(tape.conv(h, 32, 3, "3"), LEAK, "leaky2")
    h = tape.leaky(tape.conv(h, 8, 3, "5"), LEAK, "leaky3")
    for number, width in zip((8, 10, 12, 14), (64, 32, 16, 8), strict=True):
        h = tape.leaky(tape.linear(h, width, str(number)), LEAK, f"leaky{number}")
    tape.mse(tape.linear(h, 2, "16"), t, loss)
    act = [nn.LeakyReLU(LEAK) for _ in range(7)]
    module = nn.Sequential(
        nn.Conv2d(1, 64, 3), NonLocal(), act[0], nn.Conv2d(64, 32, 3), act[1], nn.Conv2d(32, 8, 3), act[2],
        nn.Flatten(), nn.Linear(200, 64), act[3], nn.Linear(64, 32), act[4], nn.Linear(32, 16), act[5],
        nn.Linear(16, 8), act[6], nn.Linear(8, 2),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    data = rng.random((batch, 1, 11, 11), np.float32), rng.random((batch, 2), np.float32)
    return _finished("braggnn", batch, tape, (x, t, loss), module, nn.MSELoss(), 3e-4, data)


def digits(batch: int = 16, rate: float = 0.0) -> Model:
    tape = Tape()
    x, t, loss = _ends(tape, (batch, 1, 8, 8), (batch,), integer=True)
    seed = tape.buffer((2,), "seed", u32, pinned=True)
    h = tape.max_pool(tape.leaky(tape.conv(x, 32, 3, "0", pad=1), 0.0, "relu1"), "pool1")
    h = tape.max_pool(tape.leaky(tape.conv(h, 64, 3, "3", pad=1), 0.0, "relu2"), "pool2")
    h = tape.leaky(tape.linear(h, 128, "7"), 0.0, "relu3")
    if rate:
        h = tape.dropout(h, rate, seed, "dropout")
    tape.nll(tape.linear(h, 10, "10"), t, loss)
    module = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(rate), nn.Linear(128, 10),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    data = rng.random((batch, 1, 8, 8), np.float32), rng.integers(0, 10, (batch,)).astype(np.int32)
    return _finished("digits", batch, tape, (x, t, loss), module, nn.CrossEntropyLoss(), 1e-3, data)


def mlp(batch: int = 32) -> Model:
    tape = Tape()
    x, t, loss = _ends(tape, (batch, 942), (batch, 1))
    h = x
    for number in (0, 2, 4):
        h = tape.leaky(tape.linear(h, 1000, str(number)), 0.0, f"relu{number}")
    tape.mse(tape.linear(h, 1, "6"), t, loss)
    module = nn.Sequential(
        nn.Linear(942, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(),
        nn.Linear(1000, 1),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    data = rng.random((batch, 942), np.float32), rng.random((batch, 1), np.float32)
    return _finished("mlp", batch, tape, (x, t, loss), module, nn.MSELoss(), 1e-3, data)


def _ends(tape: Tape, x: tuple[int, ...], t: tuple[int, ...], integer: bool = False) -> tuple[Value, Value, Value]:
    target = tape.buffer(t, "target", i32, pinned=True) if integer else tape.buffer(t, "target", pinned=True)
    return tape.buffer(x, "input", pinned=True), target, tape.buffer((), "loss", pinned=True)


def _finished(
    name: str,
    batch: int,
    tape: Tape,
    inputs: tuple[Value, Value, Value],
    module: nn.Module,
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    rate: float,
    data: tuple[np.ndarray, np.ndarray],
) -> Model:
    tape.backward()
    tape.adam(rate)
    return Model(name, batch, tape, inputs, module, criterion, rate, data)
