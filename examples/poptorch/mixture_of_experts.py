"""Train a layer of experts on several tasks at once: on one IPU, and with the experts shared by two.

Each token belongs to one of several functions, and a router finds out which expert computes it. With two replicas each
has half of the experts, and tokens travel to them; the weights stay whole on the host.

    python examples/poptorch/mixture_of_experts.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from abele import poptorch
from abele.poptorch import experts

DIM, FUNCTIONS = 16, 4


class Regression(nn.Module):
    """Experts beside a residual connection, with their distance from a target."""

    def __init__(self, group_size: int, dropless: bool) -> None:
        super().__init__()
        self.experts = poptorch.MixtureOfExperts(
            DIM, 32, num_experts=8, top_k=2, dropless=dropless, group_size=group_size
        )

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The distance, and what is minimised: it and what keeps the router balanced."""
        made, auxiliary = self.experts(x)
        distance = nn.functional.mse_loss(x + made, target)
        return distance, poptorch.identity_loss(distance + auxiliary, "none")


def batch(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, each with its function's number in the first features, and the function's values."""
    functions = torch.randn(FUNCTIONS, DIM, DIM, generator=torch.Generator().manual_seed(1)) / DIM**0.5
    kind = torch.randint(0, FUNCTIONS, (count,), generator=generator)
    x = torch.randn(count, DIM, generator=generator)
    x[:, :FUNCTIONS] = 2.0 * nn.functional.one_hot(kind, FUNCTIONS)
    return x, x + torch.tanh(torch.einsum("td,tde->te", x, functions[kind]))


def main(runs: int = 100, group_size: int = 2, dropless: bool = False) -> tuple[float, float, experts.ExpertLoad]:
    """Train; returns the first distance, the last, and what routing cost.

    Args:
        runs: Updates.
        group_size: Replicas that share the experts; 1 for one IPU.
        dropless: True to drop no token.
    """
    torch.manual_seed(0)
    model = Regression(group_size, dropless)
    options = poptorch.Options().replicationFactor(group_size).outputMode(poptorch.OutputMode.All)
    trained = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=0.01))
    generator, distances = torch.Generator().manual_seed(2), []
    for _ in range(runs):
        distance, _ = trained(*batch(128, generator))
        distances.append(float(distance.mean()))
    load = model.experts.load()
    where = "one IPU" if group_size == 1 else f"{group_size} IPUs, {8 // group_size} experts each"
    print(f"8 experts on {where}: distance {distances[0]:.3f} → {distances[-1]:.3f}; {load}")
    trained.destroy()
    return distances[0], distances[-1], load


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--group-size", type=int, default=2)
    parser.add_argument("--dropless", action="store_true")
    arguments = parser.parse_args()
    main(arguments.runs, arguments.group_size, arguments.dropless)
