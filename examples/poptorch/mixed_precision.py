"""Train in half precision: activations and gradients in float16, with losses scaled so that small gradients survive.

    python examples/poptorch/mixed_precision.py --masters --automatic

With ``--masters`` weights stay float32 and are cast where they are used; without it weights are float16 too, the
optimiser keeps its state in float32, and sums of gradients are float32.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from abele import poptorch


class HalfLinear(nn.Linear):
    """A dense layer that multiplies in float16, whatever type its weights are kept in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product, in float16."""
        return nn.functional.linear(x.half(), self.weight.half(), self.bias.half())


class Net(nn.Module):
    """Three dense layers in float16, and a loss in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(HalfLinear(30, 64), nn.GELU(), HalfLinear(64, 64), nn.GELU(), HalfLinear(64, 2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and loss."""
        scores = self.layers(x).float()
        return scores, nn.functional.cross_entropy(scores, labels)


def main(*, masters: bool = True, automatic: bool = False, runs: int = 30) -> tuple[float, float]:
    """Train; returns the first and the last loss."""
    torch.manual_seed(0)
    table = load_breast_cancer()
    x = torch.tensor((table.data - table.data.mean(0)) / table.data.std(0)).half()[:512]
    labels = torch.tensor(table.target)[:512]
    model = Net() if masters else Net().half()
    options = poptorch.Options().deviceIterations(4)
    options.Training.gradientAccumulation(2).setAutomaticLossScaling(automatic)
    options.Precision.setPartialsType(torch.float)
    optimizer = poptorch.optim.AdamW(
        model.parameters(),
        lr=2e-3,
        loss_scaling=1024.0,
        accum_type=torch.float32,
        first_order_momentum_accum_type=torch.float32,
        second_order_momentum_accum_type=torch.float32,
    )
    training = poptorch.trainingModel(model, options, optimizer)
    losses = [float(training(x, labels)[1]) for _ in range(runs)]
    scale = float(optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"])
    print(f"loss {losses[0]:.4f} → {losses[-1]:.4f}; weights {model.layers[0].weight.dtype}; loss scale {scale:g}")
    return losses[0], losses[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masters", action="store_true", help="keep weights in float32")
    parser.add_argument("--automatic", action="store_true", help="let the loss scale follow the gradients")
    given = parser.parse_args()
    main(masters=given.masters, automatic=given.automatic)
