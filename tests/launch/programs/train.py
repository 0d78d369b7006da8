"""Trains a small network on the ranks of a job; prints a digest of what came of it.

Arguments: ``--fault`` names what goes wrong in the last rank, ``--save`` and ``--load`` a checkpoint; ``--loader``
takes data from a loader, ``--seen`` what the loaders of other ranks gave.
"""

import argparse
import ast
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import poptorch
import torch

REPLICAS, SAMPLES, ACCUMULATION = 4, 2, 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(6, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(8, 3),
        )
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, y):
        out = self.net(x)
        return out, self.loss(out, y)


class Numbers(torch.utils.data.Dataset):
    """Samples that can be told apart, and are the same in every process."""

    def __init__(self, count=96):
        made = torch.Generator().manual_seed(5)
        self.x, self.y = torch.randn(count, 6, generator=made), torch.randint(0, 3, (count,), generator=made)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index], index


def options_of(fault):
    options = poptorch.Options()
    options.Training.gradientAccumulation(ACCUMULATION)
    if fault == "options":
        options.outputMode(poptorch.OutputMode.All)
    options.randomSeed(11)
    return options


def own_part(batch, options):
    """This rank's micro-batches of a batch for all replicas."""
    count = options.Distributed.numProcesses
    rounds = batch.reshape(ACCUMULATION, count, -1, *batch.shape[1:])
    return rounds[:, options.Distributed.processId].reshape(-1, *batch.shape[1:])


def digest(*tensors):
    made = hashlib.sha256()
    for tensor in tensors:
        made.update(tensor.detach().contiguous().numpy().tobytes())
    return made.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--loader", action="store_true")
    parser.add_argument("--seen", default="")
    parser.add_argument("--load", default="")
    parser.add_argument("--save", default="")
    given = parser.parse_args()
    options = options_of(given.fault if poptorch.Options().Distributed.processId else "")
    rank = options.Distributed.processId
    fault = given.fault if rank == options.Distributed.numProcesses - 1 else ""
    torch.manual_seed(4 if fault == "weights" else 3)
    model = Net()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.02 if fault == "rate" else 0.01)
    training = poptorch.trainingModel(model, options, optimizer)
    data, seen = Numbers(), []
    if given.loader:
        loader = poptorch.DataLoader(options, data, SAMPLES, shuffle=True)
        batches = [batch for _ in range(5) for batch in loader]
    else:
        each = REPLICAS * SAMPLES * ACCUMULATION
        batches = [
            tuple(own_part(t[i * each : (i + 1) * each], options) for t in (data.x, data.y, torch.arange(len(data))))
            for i in range(6)
        ]
    if given.seen:
        # What each of several ranks was given, as one process takes it: replicas within rounds.
        parts = [torch.tensor(part) for part in ast.literal_eval(Path(given.seen).read_text())]
        rounds = torch.stack([part.reshape(len(part), ACCUMULATION, -1) for part in parts], 2)
        batches = [data[indices] for indices in rounds.reshape(len(rounds), -1)]
    done = 0
    if given.load:
        done = poptorch.load_checkpoint(given.load, training)["updates"]
    for number in range(done, given.updates):
        if number == 2:
            misbehave(fault)
        if fault == "calls" and number == given.updates - 1:
            break
        x, y, indices = batches[number]
        seen.append(indices.tolist())
        training(x, y)
        if given.save:
            poptorch.save_checkpoint(given.save, training, updates=number + 1)
    training.copyWeightsToHost()
    weights = {name: t for name, t in model.state_dict().items() if "running" not in name}
    print("weights", digest(*weights.values()))
    print("running", digest(*(t for name, t in model.state_dict().items() if "running" in name)))
    print("state", digest(*(t for name, t in optimizer.state_dict()["ipu_state"].items())))
    if given.loader:
        print("seen", seen)


def misbehave(fault):
    if fault == "kill":
        print("about to go", flush=True)
        time.sleep(1)  # What is told of a process that is killed is what it told last, four times a second.
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exception":
        raise ValueError("the data is bad")
    if fault == "hang":
        print("I sleep", time.time(), flush=True)
        time.sleep(1000)
    if fault == "exit":
        sys.exit(0)


main()
