"""Host time of one update of a small BERT: on 4 stages x 2 replicas through Abele, and by PyTorch on the whole batch.

Both train the same model with the same samples, in this process and with as many threads; the best update of each
counts. On a busy machine, --cpu times by the process's own processor time. With --json one object is printed,
{"rows": [...]}, a row for each placement with seconds of an update, ``abele_seconds`` and ``eager_seconds``, and the
modelled ``cycles``; with --profile Abele's host time is listed by operation.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from lesser_cpu import hold_pytorch
from torch import nn

from abele import poptorch

WORDS, LENGTH, WIDTH, HEADS, LAYERS = 1000, 128, 256, 4, 4
STAGES = {"pipelined": poptorch.PipelinedExecution, "sharded": poptorch.ShardedExecution}


class Bert(nn.Module):
    """Embeddings, encoder layers and scores by the embeddings, which are tied; parts are blocks on four IPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(LAYERS)
        )
        self.decoder = nn.Linear(WIDTH, WORDS)
        self.decoder.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.02)
        poptorch.BeginBlock(self.words, "embeddings", ipu_id=0)
        for number, layer in enumerate(self.layers):
            poptorch.BeginBlock(layer, f"layer{number}", ipu_id=number)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss."""
        x = self.words(tokens) + self.positions(torch.arange(LENGTH))
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.decoder(x).flatten(0, 1), labels.flatten())


def best(update: Callable[[], Any], updates: int, clock: Callable[[], float]) -> float:
    """Seconds of the fastest of some updates, after one to warm up."""
    update()
    taken = []
    for _ in range(updates):
        begin = clock()
        update()
        taken.append(clock() - begin)
    return min(taken)


def measure(
    name: str, updates: int, accumulation: int, size: int, replicas: int, clock: Callable[[], float], *, profile: bool
) -> dict[str, Any]:
    """One row of the result."""
    torch.manual_seed(0)
    samples = accumulation * size * replicas
    tokens = torch.randint(0, WORDS, (samples, LENGTH), dtype=torch.int32)
    labels = (tokens + 1) % WORDS
    model = Bert()
    options = poptorch.Options().replicationFactor(replicas).setExecutionStrategy(STAGES[name]())
    options.Training.gradientAccumulation(accumulation)
    options.Abele.system("bow-pod16")
    options.Abele.threads(torch.get_num_threads())
    training = poptorch.trainingModel(model, options, poptorch.optim.AdamW(model.parameters(), lr=1e-3))
    abele = best(lambda: training(tokens, labels), updates, clock)
    cycles = training.executable.report.total_cycles
    if profile:
        with training.profiling():
            training(tokens, labels)
        print(training.profile())
    training.destroy()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def eager() -> None:
        optimiser.zero_grad()
        model(tokens, labels.long()).backward()
        optimiser.step()

    seconds = {"abele_seconds": round(abele, 3), "eager_seconds": round(best(eager, updates, clock), 3)}
    return {"placement": name, "replicas": replicas, "samples": samples, **seconds, "cycles": cycles}


def main() -> None:
    """Measure both placements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--accumulation", type=int, default=8)
    parser.add_argument("--size", type=int, default=2, help="samples of a micro-batch")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--placement", choices=[*STAGES, "both"], default="both")
    parser.add_argument(
        "--cpu", action="store_true", help="processor time of this process, and not the clock on the wall"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="host threads of each")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    hold_pytorch()
    torch.set_num_threads(asked.threads)
    clock = time.process_time if asked.cpu else time.perf_counter
    names = list(STAGES) if asked.placement == "both" else [asked.placement]
    rows = [
        measure(name, asked.updates, asked.accumulation, asked.size, asked.replicas, clock, profile=asked.profile)
        for name in names
    ]
    if asked.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print(
            ", ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in row.items())
        )


if __name__ == "__main__":
    main()
