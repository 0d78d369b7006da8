"""Trains and saves without end."""

import sys

import poptorch
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x).square(), reduction="mean")


torch.manual_seed(0)
model, options = Net(), poptorch.Options()
options.randomSeed(1)
training = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=0.01))
for number in range(1_000_000):
    training(torch.ones(options.replication_factor, 64))
    poptorch.save_checkpoint(sys.argv[1], training, updates=number + 1)
    print("saved", number + 1)
