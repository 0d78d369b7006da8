"""Attention over packed sequences: cost of masks, and savings by leaving out keys that they hide.

For every shape (tokens of a row, sequences packed into it, heads of 64 features) one table row, times in milliseconds
for a row of tokens, forward or forward and backward:

- ``skipped``: Abele with the mask ``ids == ids``, hidden keys left out; ``dense``: without the pass that does it;
- ``unmasked``: Abele without a mask;
- ``torch``: PyTorch's eager attention with the same mask, and ``nested``: over nested tensors without one, if it runs;
- ``-1000`` and ``dense -1000``: the same pair for (1 - same) * -1000 added to the scores.

Contestants take turns; each one's best round counts. --cpu times by the process's own processor time.
``--bert`` measures a training step of BERT (``--layers``, hidden 256, 512 tokens) instead, on packed and on padded rows
with lengths as in Wikipedia (``--histogram``), and prints sequences per second. About half of those packed rows are one
sequence that hides nothing; with ``--sequences N`` each packed row has N of equal length, each padded one is half full.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from rich.console import Console
from rich.table import Table
from scipy import sparse
from scipy.optimize import linprog
from torch import Tensor, nn

import abele.kernels.plan.passes as passes
from abele import poptorch

FEATURES = 64
SHAPES = (
    (512, 3, 4),
    (512, 8, 4),
    (128, 3, 4),
    (1024, 8, 4),
    (512, 1, 4),
    (384, 3, 4),
    (512, 2, 4),
    (512, 3, 16),
    (128, 1, 4),
)
"""Tokens, sequences in a row, heads."""
REPEATS = 8
"""Batches of a call."""

Contestant = Callable[[], object]


@contextmanager
def whole_scores() -> Iterator[None]:
    """Inside, plans compute the scores that masks hide, too."""
    kept = passes.PIPELINE
    passes.PIPELINE = tuple(step for step in kept if step.name != "skip_keys")
    try:
        yield
    finally:
        passes.PIPELINE = kept


def mask_of(ids: Tensor, kind: str) -> Tensor | None:
    """The mask of sequence numbers: truth values, numbers to add, or none."""
    same = ids[:, None, :, None] == ids[:, None, None, :]
    if kind == "none":
        return None
    return same if kind == "same" else (1 - same.float()) * -1000.0


class Attention(nn.Module):
    """Attention whose operands have learnt factors, so that all have gradients."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.factors = kind, nn.Parameter(torch.ones(3, FEATURES))

    def forward(self, qkv: Tensor, ids: Tensor) -> Tensor:
        q, k, v = (qkv[:, n] * self.factors[n] for n in range(3))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask_of(ids, self.kind))
        return poptorch.identity_loss((out * out).mean(), reduction="none") if self.training else out


def abele_contestant(model: nn.Module, args: tuple[Tensor, ...], threads: int, train: bool) -> Contestant:
    """A model through Abele's PopTorch front end, compiled."""
    options = poptorch.Options().deviceIterations(REPEATS)
    options.Abele.threads(threads)
    options.Abele.allowOutOfMemory()
    if train:
        optimizer = poptorch.optim.SGD(model.parameters(), lr=1e-3)
        made = poptorch.trainingModel(model, options, optimizer=optimizer)
    else:
        made = poptorch.inferenceModel(model.eval(), options)
    made(*args)
    return lambda: made(*args)


def torch_contestant(model: nn.Module, args: tuple[Tensor, ...], train: bool) -> Contestant:
    """The same model in PyTorch, batch by batch."""
    batches = list(zip(*(a.chunk(REPEATS) for a in args), strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def run() -> None:
        for batch in batches:
            if not train:
                with torch.no_grad():
                    model(*batch)
                continue
            optimizer.zero_grad()
            model(*batch).backward()
            optimizer.step()

    return run


def nested_contestant(qkv: Tensor, ids: Tensor, train: bool) -> Contestant | None:
    """Nested tensors, a sequence each; None where PyTorch cannot run them here."""
    count = int(ids.max()) + 1
    lengths = [int((ids[0] == n).sum()) for n in range(count)]

    def run() -> None:
        for row in qkv:
            parts = []
            for operand in row.detach():
                pieces = [piece.transpose(0, 1).contiguous() for piece in operand.split(lengths, dim=1)]
                nested = torch.nested.nested_tensor(pieces, layout=torch.jagged, requires_grad=train)
                parts.append(nested.transpose(1, 2))
            out = functional.scaled_dot_product_attention(*parts)
            if train:
                (out.values() ** 2).mean().backward()

    try:
        run()
    except (RuntimeError, NotImplementedError, ValueError):
        return None
    return run


def best_times(contestants: dict[str, Contestant | None], clock: Callable[[], float], rounds: int) -> dict[str, float]:
    """The least seconds of each, taking turns."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            if run is not None:
                begin = clock()
                run()
                best[name] = min(best.get(name, math.inf), clock() - begin)
    return best


def measured(shape: tuple[int, int, int], train: bool, args: argparse.Namespace) -> dict[str, float]:
    """Milliseconds for one row of a shape, by contestant."""
    tokens, count, heads = shape
    torch.manual_seed(0)
    rows = 2 * REPEATS
    qkv = torch.randn(rows, 3, heads, tokens, FEATURES)
    ids = (torch.arange(tokens) * count // tokens).to(torch.int32).expand(rows, tokens).contiguous()
    given = (qkv, ids)
    contestants: dict[str, Contestant | None] = {
        "skipped": abele_contestant(Attention("same"), given, args.threads, train),
        "-1000": abele_contestant(Attention("-1000"), given, args.threads, train),
        "unmasked": abele_contestant(Attention("none"), given, args.threads, train),
        "torch": torch_contestant(Attention("same").train(train), given, train),
        "nested": nested_contestant(qkv, ids, train),
    }
    with whole_scores():
        contestants["dense"] = abele_contestant(Attention("same"), given, args.threads, train)
        contestants["dense -1000"] = abele_contestant(Attention("-1000"), given, args.threads, train)
    clock = time.process_time if args.cpu else time.perf_counter
    return {name: seconds / rows * 1e3 for name, seconds in best_times(contestants, clock, args.rounds).items()}


COLUMNS = ("unmasked", "skipped", "dense", "-1000", "dense -1000", "torch", "nested")


def tables(args: argparse.Namespace) -> list[dict[str, object]]:
    """Measure every shape, and print."""
    found: list[dict[str, object]] = []
    for train in (False, True):
        table = Table(title=f"{'training' if train else 'forward'}, ms a row, {args.threads} threads")
        for column in ("tokens", "sequences", "heads", *COLUMNS, "dense / skipped"):
            table.add_column(column, justify="right")
        for shape in SHAPES[: args.shapes]:
            times = measured(shape, train, args)
            cells = [f"{times[name]:.3f}" if name in times else "–" for name in COLUMNS]
            table.add_row(*map(str, shape), *cells, f"{times['dense'] / times['skipped']:.2f}")
            names = dict(zip(("tokens", "sequences", "heads"), shape, strict=True))
            found.append({"train": train, **names, **times})
        Console(width=150).print(table)
    return found


class Layer(nn.Module):
    """A layer of BERT, normalised after each half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norms[0](x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width)))
        return self.norms[1](x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    """A small BERT with a head that predicts tokens; ``kind`` is its mask: packed or padded, of truth or numbers."""

    def __init__(self, kind: str, layers: int = 4, width: int = 256, heads: int = 4, words: int = 1024) -> None:
        super().__init__()
        self.kind = kind
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor, places: Tensor, ids: Tensor, labels: Tensor) -> Tensor:
        mask = (
            ids[:, None, :, None] == ids[:, None, None, :]
            if self.kind.startswith("packed")
            else (ids > 0)[:, None, None]
        )
        added = (1 - mask.float()) * -1000.0
        x = self.words(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x, added if self.kind.endswith("-1000") else mask)
        scores = self.head(x)
        losses = functional.cross_entropy(scores.transpose(1, 2), labels, ignore_index=0, reduction="none")
        weights = (labels > 0).float()
        return poptorch.identity_loss((losses * weights).sum() / weights.sum(), reduction="none")


def packs_of(path: Path, rows: int, tokens: int = 512) -> tuple[list[list[int]], list[int]]:
    """Rows of up to three sequences that fill them, and rows of one sequence: some for all, evenly by length.

    Packs are those of the linear programme over all ways to fill a row, so the packing factor is the best there is.
    """
    with path.open(encoding="utf-8") as file:
        found = {int(line["length"]): float(line["wikipedia_512"]) for line in csv.DictReader(file)}
    share = np.array([found.get(n, 0.0) for n in range(1, tokens + 1)])
    one, two = np.meshgrid(np.arange(tokens + 1), np.arange(tokens + 1), indexing="ij")
    fits = (one <= two) & (two <= tokens - one - two) & (one + two < tokens)
    ways = np.stack([one[fits], two[fits], tokens - one[fits] - two[fits]])
    counts = sparse.coo_array((np.ones(ways.size), (ways.ravel(), np.tile(np.arange(ways.shape[1]), 3)))).tocsr()[1:]
    used = linprog(np.ones(ways.shape[1]), A_ub=-counts, b_ub=-share / share.sum(), method="highs").x
    at = (np.arange(rows) + 0.5) / rows
    chosen = ways[:, np.searchsorted(np.cumsum(used) / used.sum(), at)]
    single = np.searchsorted(np.cumsum(share) / share.sum(), at) + 1
    return [[int(n) for n in row if n] for row in chosen.T], single.tolist()


def batch_of(rows: list[list[int]], tokens: int = 512) -> tuple[Tensor, ...]:
    """Random words, positions from each sequence's start, sequence numbers (0: padding), labels."""
    torch.manual_seed(3)
    words = torch.randint(1, 1024, (len(rows), tokens), dtype=torch.int32)
    ids = np.zeros((len(rows), tokens), np.int32)
    places = np.zeros((len(rows), tokens), np.int32)
    for row, lengths in enumerate(rows):
        numbers = np.repeat(np.arange(1, len(lengths) + 1), lengths)
        ids[row, : numbers.size] = numbers
        places[row, : numbers.size] = np.concatenate([np.arange(n) for n in lengths])
    known = torch.from_numpy(ids)
    labels = torch.where((torch.rand(known.shape) < 0.15) & (known > 0), words, 0).to(torch.int32)
    return words, torch.from_numpy(places), known, labels


def bert(args: argparse.Namespace) -> list[dict[str, object]]:
    """Training steps on packed and padded rows: sequences per second."""
    rows = 2 * REPEATS
    if args.sequences:
        ends = [512 * n // args.sequences for n in range(args.sequences + 1)]
        packed, padded = [[b - a for a, b in pairwise(ends)]] * rows, [256] * rows
    else:
        packed, padded = packs_of(args.histogram, rows)
    given = {"packed": batch_of(packed), "padded": batch_of([[n] for n in padded])}
    counts = {"packed": sum(map(len, packed)), "padded": rows}
    contestants: dict[str, Contestant | None] = {}
    for kind in ("packed", "padded", "packed -1000", "padded -1000")[: 4 if args.numbers else 2]:
        torch.manual_seed(0)
        contestants[kind] = abele_contestant(Bert(kind, args.layers), given[kind.split()[0]], args.threads, True)
        with whole_scores():
            contestants[f"{kind}, dense"] = abele_contestant(
                Bert(kind, args.layers), given[kind.split()[0]], args.threads, True
            )
    clock = time.process_time if args.cpu else time.perf_counter
    times = best_times(contestants, clock, args.rounds)
    table = Table(
        title=f"BERT {args.layers} × 256, 512 tokens, training, {args.threads} threads; "
        f"factor {counts['packed'] / rows:.3f}"
    )
    for column in ("rows and mask", "ms a row", "sequences/s"):
        table.add_column(column, justify="right")
    rates = {name: counts[name.split(",")[0].split()[0]] / seconds for name, seconds in times.items()}
    for name, seconds in times.items():
        table.add_row(name, f"{seconds / rows * 1e3:.2f}", f"{rates[name]:.2f}")
    console = Console(width=150)
    console.print(table)
    for one, other in (("packed", "padded"), ("packed", "padded, dense"), ("packed, dense", "padded, dense")):
        console.print(f"{one} / {other}: {rates[one] / rates[other]:.3f}")
    return [
        {"name": name, "milliseconds": seconds / rows * 1e3, "rate": rates[name]} for name, seconds in times.items()
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="by processor time, for a busy machine (with one thread)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="how many of the shapes")
    parser.add_argument("--bert", action="store_true", help="packed against padded BERT")
    parser.add_argument("--layers", type=int, default=4, help="with --bert")
    parser.add_argument("--sequences", type=int, default=0, help="with --bert: of equal length, in each packed row")
    parser.add_argument("--numbers", action="store_true", help="with --bert: masks of numbers that are added, too")
    parser.add_argument("--histogram", type=Path, default=Path("../shared/data/length_histograms.csv"))
    parser.add_argument("--json", action="store_true", help="print one object at the end")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = bert(args) if args.bert else tables(args)
    if args.json:
        print(json.dumps({"threads": args.threads, "rows": found}))


if __name__ == "__main__":
    main()
