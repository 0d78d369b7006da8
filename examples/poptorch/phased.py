"""A stack of layers that is larger than its IPU: in phases, layer after layer comes from streaming memory.

Weights, their gradients and the state of Adam need several times the memory of the IPU, which has 32 tiles here so that
the program is quick. In phases the chip has one layer at a time: its weights come when it runs, what it leaves for the
backward pass waits outside, its gradients are added to sums there, and the update goes through the layers once more.
What is learnt is what PyTorch learns on the host.

    python examples/poptorch/phased.py [--layers 12] [--width 512]
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import nn

from abele import poptorch
from abele.errors import OutOfMemoryError
from abele.machine import System, systems


class Stack(nn.Module):
    """Layers, each of which is a block."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss, which is in the last layer's block."""
        for number, layer in enumerate(self.layers):
            poptorch.Block.start(f"layer{number}", ipu_id=0)
            x = torch.tanh(layer(x))
        return nn.functional.mse_loss(x, target)


def small_system(tiles: int) -> System:
    """A Bow with one IPU of so many tiles, and all of its streaming memory."""
    return systems.get("bow-2000:1").evolve(name=f"bow of {tiles} tiles", ipu={"num_tiles": tiles})


def phases(layers: int) -> poptorch.SerialPhasedExecution:
    """A phase for each layer, with nothing of it left on the chip afterwards."""
    listed = (poptorch.Phase(poptorch.Stage(f"layer{number}").ipu(0)) for number in range(layers))
    return poptorch.SerialPhasedExecution(*listed).setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase)


def training_of(model: nn.Module, strategy: poptorch.options.ExecutionStrategy, tiles: int) -> poptorch.PoplarExecutor:
    """The model on the small IPU."""
    options = poptorch.Options().setExecutionStrategy(strategy).showCompilationProgressBar(False)
    options.outputMode(poptorch.OutputMode.Sum)
    options.Training.gradientAccumulation(2)
    options.Abele.system(small_system(tiles))
    return poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=1e-3))


def on_host(model: nn.Module, x: torch.Tensor, target: torch.Tensor, updates: int) -> float:
    """The loss of the last of some updates by PyTorch."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(updates):
        optimiser.zero_grad()
        loss = model(x, target)
        loss.backward()
        optimiser.step()
    return float(loss.detach())


def main(*, layers: int = 12, width: int = 512, tiles: int = 32, updates: int = 4) -> tuple[bool, float, float, float]:
    """Train in phases and on the host; returns whether the stack fits without, both losses, and the memory in use.

    The memory is that of the fullest tile, as a share of what it has.
    """
    torch.manual_seed(0)
    model = Stack(layers, width)
    twin = copy.deepcopy(model)
    poptorch.removeBlocks(twin)
    x = torch.randn(16, width)
    target = x.flip(1).tanh()
    whole = poptorch.ShardedExecution(poptorch.Stage(*(f"layer{n}" for n in range(layers))).ipu(0))
    fits = True
    try:
        training_of(copy.deepcopy(model), whole, tiles).compile(x, target)
    except OutOfMemoryError as error:
        fits = False
        print(str(error).splitlines()[0])
    training = training_of(model, phases(layers), tiles)
    losses = [float(training(x, target)) / 2 for _ in range(updates)]  # the mean of both micro-batches
    memory = training.executable.report.memory
    used = float(memory.by_tile.max()) / memory.available_bytes
    expected = on_host(twin, x, target, updates)
    print(f"in phases the fullest tile is {used:.0%} full; loss {losses[-1]:.5f}, on the host {expected:.5f}")
    training.destroy()
    return fits, losses[-1], expected, used


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    asked = parser.parse_args()
    main(layers=asked.layers, width=asked.width)
