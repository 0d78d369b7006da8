"""Views between products that make them slow: processor time per step beside PyTorch eager, one thread each.

Small networks, each with products before and after one view of activations: a slice, a gather, a concatenation, a
broadcast, a rearrangement. Both sides take turns in one process, and the least processor time of each counts, so that
other programs on the machine matter little. Rows below ``--bar`` are cliffs; with ``--random N``, so many random
chains of views and products are measured as well.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from abele import poptorch

LEARNING_RATE = 1e-3
CLASSES, STEPS = 4, 4
SIZES = ((8, 64, 128), (3, 50, 96), (32, 16, 128), (4, 128, 512))
"""Batch, tokens and width."""


class View(nn.Module):
    """One view of activations [batch, tokens, width], by name, with the parameters that it needs."""

    def __init__(self, name: str, tokens: int, width: int) -> None:
        super().__init__()
        self.name, self.tokens, self.width = name, tokens, width
        if name in PARAMETERS:
            self.own = nn.Parameter(torch.randn(PARAMETERS[name](tokens, width)) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        """The view of ``x``."""
        return VIEWS[self.name](self, x)


def _heads(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:-1], 4, x.shape[-1] // 4).transpose(1, 2)


def _attention(view: View, x: Tensor) -> Tensor:
    q, k, v = (_heads(part) for part in torch.cat([x, x * 0.5, x + 1.0], -1).chunk(3, -1))
    mixed = torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v
    return mixed.transpose(1, 2).reshape(x.shape)


def _rotary(view: View, x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * 0.8 + torch.cat([-b, a], -1) * 0.6


def _patches(view: View, x: Tensor) -> Tensor:
    batch, tokens, width = x.shape
    grid = x[:, : tokens // 2 * 2].reshape(batch, tokens // 2, 2, width // 8, 8)
    return grid.permute(0, 1, 3, 2, 4).reshape(batch, tokens // 2, 2 * width)


def _shuffle(view: View, x: Tensor) -> Tensor:
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, 4, width // 4).permute(0, 1, 3, 2).reshape(batch, tokens * 2, width // 2)


VIEWS: dict[str, Callable[[View, Tensor], Tensor]] = {
    "none": lambda view, x: x,
    "first token": lambda view, x: x[:, 0],
    "last token": lambda view, x: x[:, -1],
    "middle token kept": lambda view, x: x[:, view.tokens // 2 : view.tokens // 2 + 1],
    "first half": lambda view, x: x[:, : view.tokens // 2],
    "without first": lambda view, x: x[:, 1:],
    "every second": lambda view, x: x[:, ::2],
    "half of width": lambda view, x: x[..., : view.width // 2],
    "odd part of width": lambda view, x: x[..., 3 : view.width - 10],
    "first sample": lambda view, x: x[:1],
    "gated halves": lambda view, x: x[..., : view.width // 2] * torch.sigmoid(x[..., view.width // 2 :]),
    "split in three": lambda view, x: torch.cat(
        [p * s for p, s in zip(x.split(view.width // 3 + 1, -1), (1, 2, 3), strict=True)], -1
    ),
    "mean over tokens": lambda view, x: x.mean(1),
    "maximum over tokens": lambda view, x: x.amax(1),
    "mean and back": lambda view, x: x - x.mean(1, keepdim=True),
    "first and mean": lambda view, x: torch.cat([x[:, 0], x.mean(1)], -1),
    "class token": lambda view, x: torch.cat([view.own.expand(x.shape[0], 1, -1), x], 1),
    "positions": lambda view, x: x + view.own,
    "scale of tokens": lambda view, x: x * view.own,
    "skip": lambda view, x: torch.cat([x, torch.tanh(x)], -1),
    "after each other": lambda view, x: torch.cat([x, torch.tanh(x)], 1),
    "stack": lambda view, x: torch.stack([x, torch.tanh(x)], 2).flatten(1, 2),
    "interleave": lambda view, x: torch.stack([x, torch.tanh(x)], 3).flatten(2, 3),
    "pad": lambda view, x: F.pad(x, (0, 0, 1, 1)),
    "shift": lambda view, x: F.pad(x, (0, 0, 1, 0))[:, :-1] + x,
    "differences": lambda view, x: x[:, 1:] - x[:, :-1],
    "roll": lambda view, x: torch.roll(x, 3, 1) + x,
    "flip": lambda view, x: x.flip(1) + x,
    "chosen tokens": lambda view, x: x[:, torch.tensor([5, 1, 1, 9, 0, 14])],
    "shuffled tokens": lambda view, x: x[:, torch.tensor([(7 * i + 3) % view.tokens for i in range(view.tokens)])],
    "repeat": lambda view, x: x.repeat_interleave(2, 1),
    "tile": lambda view, x: x.repeat(1, 2, 1),
    "heads": lambda view, x: _heads(x).flatten(2),
    "transpose": lambda view, x: x.transpose(1, 2).tanh().transpose(1, 2),
    "tokens mixed": lambda view, x: (x.transpose(1, 2) @ view.own).transpose(1, 2),
    "patches": _patches,
    "shuffle": _shuffle,
    "attention": _attention,
    "rotary": _rotary,
    "causal": lambda view, x: (torch.tril(torch.ones(view.tokens, view.tokens)) / view.tokens) @ x,
    "windows": lambda view, x: x[:, : view.tokens // 4 * 4].reshape(x.shape[0], -1, 4 * view.width),
    "unfold": lambda view, x: torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], -1),
    "samples as rows": lambda view, x: x.flatten(0, 1),
    "outer": lambda view, x: x[:, :4].unsqueeze(2) * x[:, :4].unsqueeze(1),
    "norm": lambda view, x: F.layer_norm(x, (view.width,)),
}
"""Views of activations [batch, tokens, width]; the last dim of the result is a width again."""
PARAMETERS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "class token": lambda tokens, width: (1, 1, width),
    "positions": lambda tokens, width: (tokens, width),
    "scale of tokens": lambda tokens, width: (tokens, 1),
    "tokens mixed": lambda tokens, width: (tokens, tokens),
}


class Chain(nn.Module):
    """A product, then each view and a product after it; logits are means over what is left of the tokens."""

    def __init__(self, names: tuple[str, ...], batch: int, tokens: int, width: int, *, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu
        self.first = nn.Linear(width, width)
        self.views, self.layers = nn.ModuleList(), nn.ModuleList()
        x = torch.zeros(batch, tokens, width)
        for number, name in enumerate(names):
            rows = x if x.ndim == 3 else x.reshape(x.shape[0], -1, x.shape[-1])
            view = View(name, rows.shape[1], rows.shape[2])
            x = view(rows)
            out = CLASSES if number == len(names) - 1 else x.shape[-1]
            self.views.append(view)
            self.layers.append(nn.ModuleList([nn.Linear(x.shape[-1], width), nn.Linear(width, out)]))
            x = x.new_zeros(*x.shape[:-1], out)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and loss."""
        x = self.first(x)
        for view, (wide, narrow) in zip(self.views, self.layers, strict=True):
            x = x if x.ndim == 3 else x.reshape(x.shape[0], -1, x.shape[-1])
            x = wide(view(x))
            x = narrow(F.relu(x) if self.relu else x)
        logits = x.reshape(-1, CLASSES).mean(0, keepdim=True)
        return logits, F.cross_entropy(logits, target)


@dataclass(frozen=True)
class Case:
    """One network and its data.

    Attributes:
        views: Names of views in order.
        size: Batch, tokens and width.
        training: False to run forward alone.
        relu: True for an activation between the products.
    """

    views: tuple[str, ...]
    size: tuple[int, int, int]
    training: bool = True
    relu: bool = False

    @property
    def name(self) -> str:
        """As in the table."""
        kind = "train" if self.training else "infer"
        return f"{', '.join(self.views)} {self.size} {kind}{' relu' if self.relu else ''}"

    def module(self) -> Chain:
        """The network with reproducible weights."""
        torch.manual_seed(0)
        return Chain(self.views, *self.size, relu=self.relu)


def measure(case: Case, rounds: int) -> dict[str, object]:
    """One row: processor milliseconds per step of both, their ratio, and the steps that run vertices."""
    ours, theirs = case.module(), case.module()
    batches = [(torch.randn(case.size), torch.tensor([n % CLASSES])) for n in range(STEPS)]
    x, target = torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])
    options = poptorch.Options().deviceIterations(STEPS)
    options.Abele.threads(1)
    options.Abele.allowOutOfMemory()
    start = time.process_time()
    if case.training:
        model = poptorch.trainingModel(ours, options, optimizer=torch.optim.SGD(ours.parameters(), lr=LEARNING_RATE))
        update = torch.optim.SGD(theirs.parameters(), lr=LEARNING_RATE)
    else:
        model = poptorch.inferenceModel(ours, options)
    got = model(x, target)
    compiled = time.process_time() - start

    def eager() -> Tensor:
        if not case.training:
            with torch.no_grad():
                return torch.cat([theirs(*batch)[0] for batch in batches])
        for batch in batches:
            update.zero_grad()
            logits, loss = theirs(*batch)
            loss.backward()
            update.step()
        return logits.detach()

    want = eager()
    torch.testing.assert_close(got[0], want, rtol=1e-3, atol=1e-4)
    taken: dict[str, list[float]] = {"abele": [], "eager": []}
    gc.disable()
    for _ in range(rounds):
        for name, run in (("abele", lambda: model(x, target)[0]), ("eager", eager)):
            start = time.process_time()
            result = run()
            taken[name].append(time.process_time() - start)
            got, want = (result, want) if name == "abele" else (got, result)
    gc.enable()
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    best = {name: min(times) / STEPS for name, times in taken.items()}
    ratio = best["eager"] / best["abele"]
    row = {name: round(seconds * 1e3, 3) for name, seconds in best.items()}
    return {"case": case.name, **row, "ratio": round(ratio, 3), "compile": round(compiled, 2)}


def cases(wanted: str | None) -> list[Case]:
    """Every view, in training and inference, at every size."""
    found = [Case((name,), size, training) for name, size, training in product(VIEWS, SIZES, (True, False))]
    found += [Case((name,), SIZES[0], relu=True) for name in VIEWS]
    return [case for case in found if wanted is None or wanted in case.name]


def random_cases(count: int, seed: int) -> list[Case]:
    """Random chains of two or three views."""
    draw = random.Random(seed)
    return [
        Case(
            tuple(draw.choices(list(VIEWS), k=draw.randint(2, 3))),
            draw.choice(SIZES),
            draw.random() < 0.7,
            draw.random() < 0.5,
        )
        for _ in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print a JSON object per row as it is measured")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side")
    parser.add_argument("--case", help="measure only cases whose name contains this")
    parser.add_argument("--random", type=int, default=0, help="so many random chains instead")
    parser.add_argument("--seed", type=int, default=0, help="of the random chains")
    parser.add_argument("--bar", type=float, default=0.5, help="ratio under which a row is a cliff")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in random_cases(arguments.random, arguments.seed) if arguments.random else cases(arguments.case):
        try:
            row = measure(case, arguments.rounds)
        except Exception as error:
            row = {"case": case.name, "error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        rows.append(row)
        if arguments.json:
            print(json.dumps(row), flush=True)
    if not arguments.json:
        show(rows, arguments.bar)


def show(rows: list[dict[str, object]], bar: float) -> None:
    """Print the rows as a table, the slowest first."""
    table = Table(title="milliseconds of processor time per step", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("network", "abele", "eager", "/eager", "compile s", ""):
        table.add_column(heading, justify="left" if heading in ("network", "") else "right")
    for row in sorted(rows, key=lambda r: float(str(r.get("ratio", 0)))):
        mark = str(row["error"]) if "error" in row else "cliff" if float(str(row["ratio"])) < bar else ""
        shown = (f"{row[k]}" if k in row else "–" for k in ("abele", "eager", "ratio", "compile"))
        table.add_row(str(row["case"]), *shown, mark)
    Console().print(table)


if __name__ == "__main__":
    main()
