"""Indexing, sorting and scanning through PopTorch's names beside eager PyTorch: host time, compile time, tiles.

    python benchmarks/indexing.py [--json] [--threads 1] [--rounds 8] [--only PART_OF_NAME]

Times are processor time of the process, the best of alternating rounds, so that other programs on the machine do not
count; ``ratio`` is PyTorch's over ours, above 1 where Abele is faster. A call takes its inputs from tensors and gives
its results as tensors, as PyTorch's does; ``weight`` marks tables that are parameters and stay on the device, ``train``
a whole step with plain SGD. ``compile`` is processor time of the first call less one later call. ``cycles`` are those
of the modelled machine, ``busiest`` is what its busiest tile computes over the mean of all tiles.
With --json one object is printed: {"rows": [...]}.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from lesser_cpu import cpu_of_both, hold_pytorch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from abele import poptorch
from abele.errors import AbeleError

MILLION = 1_000_000
generator = torch.Generator().manual_seed(0)


def reals(*shape: int) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=generator)


def places(bound: int, *shape: int) -> Tensor:
    """Indices below ``bound``."""
    return torch.randint(0, bound, shape, generator=generator)


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        name: Name of the case.
        function: Function to measure; of the weight first, where there is one.
        args: Makes its arguments.
        weight: Shape of a parameter; none for an empty one.
        train: True for a training step: back through the sum of squares of the result, and plain SGD.
    """

    name: str
    function: Callable[..., Any]
    args: Callable[[], tuple[Tensor, ...]]
    weight: tuple[int, ...] = ()
    train: bool = False

    def module(self) -> nn.Module:
        """The function as a module; its weight is the same every time."""
        if not self.weight:
            return Function(self.function)
        torch.manual_seed(0)
        kind = Trained if self.train else Weighted
        return kind(torch.randn(*self.weight), self.function)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        """Call it."""
        return self.function(*args)


class Weighted(nn.Module):
    """A function whose first operand is a parameter."""

    def __init__(self, weight: Tensor, function: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        """Call it."""
        return self.function(self.weight, *args)


class Trained(Weighted):
    """The mean of what a function gives, as a loss."""

    def forward(self, *args: Tensor) -> Any:
        """Call it."""
        result = self.function(self.weight, *args)
        return result, poptorch.identity_loss(result.square().sum(), reduction="sum")


def looking_up() -> Iterator[Case]:
    """Reading at places that values name."""

    def rows(x: Tensor, i: Tensor) -> Tensor:
        return x.index_select(0, i)

    def columns(x: Tensor, i: Tensor) -> Tensor:
        return x.index_select(1, i)

    def entries(w: Tensor, i: Tensor) -> Tensor:
        return functional.embedding(i, w)

    def bags(w: Tensor, i: Tensor) -> Tensor:
        return functional.embedding_bag(i.reshape(1024, 8), w)

    def along(x: Tensor, i: Tensor) -> Tensor:
        return x.gather(1, i)

    large, half = (100_000, 128), lambda: (places(1000, 500),)
    yield Case("index_select rows 100k x 128", rows, lambda: (reals(*large), places(100_000, 16_384)))
    yield Case("index_select rows, weight", rows, lambda: (places(100_000, 16_384),), large)
    yield Case("index_select columns 4096 x 1000", columns, lambda: (reals(4096, 1000), places(1000, 500)))
    yield Case("index_select columns, weight", columns, half, (4096, 1000))
    yield Case("index_select columns, train", columns, half, (4096, 1000), True)
    yield Case("gather 64 x 1000", along, lambda: (reals(64, 1000), places(1000, 64, 500)))
    yield Case("gather 1M of 1M", lambda x, i: x.gather(0, i), lambda: (reals(MILLION), places(MILLION, MILLION)))
    yield Case("gather 4096 x 256, train", along, lambda: (places(256, 4096, 64),), (4096, 256), True)
    yield Case("take_along_dim 4096 x 256", along, lambda: (reals(4096, 256), places(256, 4096, 256)))
    yield Case(
        "x[i, :, j]",
        lambda x, i, j: x[i, :, j],
        lambda: (reals(512, 16, 512), places(512, 4096), places(512, 4096)),
    )
    yield Case("embedding 50k x 128, weight", entries, lambda: (places(50_000, 8192),), (50_000, 128))
    yield Case("embedding 50k x 128, train", entries, lambda: (places(50_000, 8192),), (50_000, 128), True)
    yield Case("embedding 1000 x 256, 32k rows, train", entries, lambda: (places(1000, 32_768),), (1000, 256), True)
    yield Case("embedding_bag 50k x 64, weight", bags, lambda: (places(50_000, 8192),), (50_000, 64))
    yield Case("embedding_bag 50k x 64, train", bags, lambda: (places(50_000, 8192),), (50_000, 64), True)
    yield Case("one_hot 4096 x 1000", lambda i: functional.one_hot(i, 1000), lambda: (places(1000, 4096),))
    yield Case("searchsorted 100k in 10k", torch.searchsorted, lambda: (reals(10_000).sort()[0], reals(100_000)))
    yield Case("bucketize 1M in 100", torch.bucketize, lambda: (reals(MILLION), reals(100).sort()[0]))


def writing() -> Iterator[Case]:
    """Writing to places that values name."""

    def added(*shape: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda x, i: torch.zeros(*shape).index_add(0, i, x)

    def largest(x: Tensor, i: Tensor) -> Tensor:
        return torch.full((20_000, 16), -9.0).scatter_reduce(0, i[:, None].expand(-1, 16), x, "amax")

    def counted(i: Tensor) -> Tensor:
        return torch.zeros(1000).index_add(0, i, torch.ones(MILLION))

    def edges() -> tuple[Tensor, ...]:
        return reals(200_000, 16), places(20_000, 200_000)

    def entries() -> tuple[Tensor, ...]:
        return reals(20_000, 64), places(20_000, 4096), reals(4096, 64)

    yield Case(
        "scatter_add 64 x 1000 of 2000",
        lambda x, i: torch.zeros(64, 1000).scatter_add(1, i, x),
        lambda: (reals(64, 2000), places(1000, 64, 2000)),
    )
    yield Case("index_add 1M into 50k", added(50_000), lambda: (reals(MILLION), places(50_000, MILLION)))
    yield Case("index_add 200k x 16 into 20k", added(20_000, 16), edges)
    yield Case("index_add 1M x 4 into 50k", added(50_000, 4), lambda: (reals(MILLION, 4), places(50_000, MILLION)))
    yield Case("scatter_reduce amax 200k x 16", largest, edges)
    yield Case("index_put 4096 of 20k x 64", lambda x, i, v: x.index_put((i,), v), entries)
    yield Case("index_put accumulate", lambda x, i, v: x.index_put((i,), v, accumulate=True), entries)
    yield Case("count 1M into 1000", counted, lambda: (places(1000, MILLION),))
    yield Case(
        "masked_fill 1M", lambda x, m: x.masked_fill(m, -1.0), lambda: (reals(1000, 1000), reals(1000, 1000) > 0)
    )
    yield Case(
        "masked_scatter 1024 x 256",
        lambda x, m, s: x.masked_scatter(m, s),
        lambda: (reals(1024, 256), reals(1024, 256) > 0, reals(1024 * 256)),
    )
    yield Case(
        "nonzero_static 1000 x 100",
        lambda x: torch.nonzero_static(x > 0, size=50_000),
        lambda: (reals(1000, 100),),
    )
    yield Case("histc 1M, 100 bins", lambda x: torch.histc(x, 100, -3.0, 3.0), lambda: (reals(MILLION),))


def ordering() -> Iterator[Case]:
    """Order, ranks, running sums."""

    def square() -> tuple[Tensor, ...]:
        return (reals(1024, 1000),)

    def million() -> tuple[Tensor, ...]:
        return (reals(MILLION),)

    def quarter() -> tuple[Tensor, ...]:
        return (reals(256, 1000),)

    def long() -> tuple[Tensor, ...]:
        return (reals(64, 4096),)

    yield Case("sort 1024 x 1000", lambda x: x.sort(1), square)
    yield Case("sort 1M", lambda x: x.sort(0), million)
    yield Case("argsort 1024 x 1000", lambda x: x.argsort(1), square)
    yield Case("sort columns 1000 x 1024", lambda x: x.sort(0), lambda: (reals(1000, 1024),))
    yield Case("topk 10 of 1024 x 1000", lambda x: x.topk(10, 1), square)
    yield Case("topk 500 of 1024 x 1000", lambda x: x.topk(500, 1), square)
    yield Case("topk 5 of 128 x 50k", lambda x: x.topk(5, 1), lambda: (reals(128, 50_000),))
    yield Case("topk 100 of 1M", lambda x: x.topk(100), million)
    yield Case("kthvalue 256 x 1000", lambda x: x.kthvalue(300, 1), quarter)
    yield Case("median 256 x 1000", lambda x: x.median(1), quarter)
    yield Case("mode 256 x 1000", lambda x: x.mode(1), lambda: (places(20, 256, 1000),))
    yield Case("max 1024 x 1000", lambda x: x.max(1), square)
    yield Case("argmax 1024 x 1000", lambda x: x.argmax(1), square)
    yield Case("cumsum 64 x 4096", lambda x: x.cumsum(1), long)
    yield Case("cumsum 1M", lambda x: x.cumsum(0), million)
    yield Case("cumsum columns 4096 x 256", lambda x: x.cumsum(0), lambda: (reals(4096, 256),))
    yield Case("cumprod 64 x 4096", lambda x: x.cumprod(1), long)
    yield Case("cummax 64 x 4096", lambda x: x.cummax(1), long)
    yield Case("logcumsumexp 64 x 4096", lambda x: x.logcumsumexp(1), long)
    yield Case("randperm 1000", lambda x: x + torch.randperm(1000), lambda: (places(5, 1000),))
    yield Case("randperm 10k", lambda x: x + torch.randperm(10_000), lambda: (places(5, 10_000),))
    yield Case("randperm 100k", lambda x: x + torch.randperm(100_000), lambda: (places(5, 100_000),))
    yield Case("multinomial 64 x 1000, 10", lambda x: torch.multinomial(x, 10), lambda: (reals(64, 1000).abs(),))


def all_cases() -> Iterator[Case]:
    """All rows."""
    yield from looking_up()
    yield from writing()
    yield from ordering()
    yield Case("eigh 128", lambda x: torch.linalg.eigh(x @ x.T), lambda: (reals(128, 128),))
    yield Case("svd 128", torch.linalg.svd, lambda: (reals(128, 128),))


def eager_step(module: nn.Module) -> Callable[..., Any]:
    """A training step in PyTorch."""
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)

    def step(*args: Tensor) -> Any:
        optimiser.zero_grad()
        result, loss = module(*args)
        loss.backward()
        optimiser.step()
        return result.detach(), loss.detach()

    return step


def both_sides(case: Case, threads: int) -> tuple[Any, Callable[..., Any], tuple[Any, ...]]:
    """The compiled model, what PyTorch does, and their arguments."""
    options = poptorch.Options()
    options.Abele.threads(threads)
    if not case.train:
        return poptorch.inferenceModel(case.module(), options), torch.no_grad()(case.module()), case.args()
    ours = case.module().train()
    optimiser = poptorch.optim.SGD(ours.parameters(), lr=1e-3)
    return poptorch.trainingModel(ours, options, optimizer=optimiser), eager_step(case.module()), case.args()


def processor_seconds(step: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    step(*args)
    return time.process_time() - start


def measure(case: Case, threads: int, rounds: int) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"function": case.name, "threads": threads}
    try:
        model, reference, args = both_sides(case, threads)
        first = processor_seconds(model, args)
    except AbeleError as error:
        return row | {"error": str(error).splitlines()[0]}
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, step in enumerate((model, reference)):
            best[side] = min(best[side], processor_seconds(step, args))
    report = model.report()
    row |= {
        "abele_ms": best[0] * 1e3,
        "torch_ms": best[1] * 1e3,
        "ratio": best[1] / best[0],
        "compile_s": first - best[0],
    }
    return row | {"cycles": report.total_cycles, "busiest": 1 / max(report.tile_balance, 1e-9)}


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print the rows as a table."""
    title = f"indexing and sorting on this host, {cpu_of_both()}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("function", "abele ms", "torch ms", "ratio", "compile s", "cycles", "busiest"):
        table.add_column(heading, justify="left" if heading == "function" else "right")
    for row in rows:
        if "error" in row:
            table.add_row(row["function"], row["error"])
            continue
        table.add_row(
            row["function"],
            f"{row['abele_ms']:.2f}",
            f"{row['torch_ms']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['compile_s']:.2f}",
            f"{row['cycles']:,}",
            f"{row['busiest']:.2f}",
        )
    console.print(table)


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    hold_pytorch()
    torch.set_num_threads(options.threads)
    console = Console(stderr=options.json, width=130)
    rows = []
    for case in all_cases():
        if options.only in case.name:
            rows.append(measure(case, options.threads, options.rounds))
            console.print(json.dumps(rows[-1]), highlight=False, soft_wrap=True, style="dim")
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    show(rows, console)


if __name__ == "__main__":
    main()
