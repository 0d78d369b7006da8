"""Compile time that a repeated layer adds: models of N equal blocks, and where the time of each stage goes.

Rows are a kind of block, inference or training, and N. Columns are seconds of processor time: capture by PyTorch,
passes, building graph and program, analyses of the compiler, the host's native program, and all but the capture
(``seconds``), with their ratio to those of one block, then what the modelled machine makes of them; ``bytes`` is the
fullest tile's. With --functions the machine holds repeated blocks once. Kinds are measured in processes of
their own, with a warm cache of codelets. With --json one object is printed, {"rows": [...]}.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table
from rows_output import print_rows

COUNTS = (1, 2, 4, 8, 12)
STAGES = ("capture", "passes", "build", "analyse", "native")


def mlp(torch: Any, count: int) -> tuple[Any, Any]:
    """Linear and GELU, as the halves of a transformer's MLP."""
    nn = torch.nn
    block = lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))  # noqa: E731
    return nn.Sequential(*(block() for _ in range(count))), torch.randn(32, 256)


def conv(torch: Any, count: int) -> tuple[Any, Any]:
    """Convolution, batch norm and ReLU."""
    nn = torch.nn
    block = lambda: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())  # noqa: E731
    return nn.Sequential(*(block() for _ in range(count))), torch.randn(4, 32, 16, 16)


def encoder(torch: Any, count: int) -> tuple[Any, Any]:
    """A transformer's encoder layer: attention of four heads and an MLP, each with a norm and a way round it."""
    nn = torch.nn

    class Encoder(nn.Module):
        def __init__(self, width: int = 128, heads: int = 4) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

        def split(self, x: Any) -> Any:
            batch, length, width = x.shape
            return x.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)

        def forward(self, x: Any) -> Any:
            y = self.norm1(x)
            query, key, value = self.split(self.query(y)), self.split(self.key(y)), self.split(self.value(y))
            weights = torch.softmax(query @ key.transpose(-1, -2) * (x.shape[-1] // self.heads) ** -0.5, dim=-1)
            x = x + self.out((weights @ value).transpose(1, 2).reshape(x.shape))
            return x + self.down(self.act(self.up(self.norm2(x))))

    return nn.Sequential(*(Encoder() for _ in range(count))), torch.randn(2, 32, 128)


KINDS = {"mlp": mlp, "conv": conv, "encoder": encoder}


def measure(kind: str, count: int, *, training: bool, functions: bool) -> dict[str, Any]:
    """Seconds of each stage of compiling one model in this process."""
    import torch

    from abele import poptorch
    from abele.compiler import compile_program
    from abele.distribution.program import lower_network
    from abele.distribution.program_options import RunModes
    from abele.frontends.poptorch.capture import capture
    from abele.graph import Graph
    from abele.machine import systems
    from abele.network import Group, Schedule, Sgd, inference_pipeline, training_pipeline
    from abele.runtime import Engine
    from abele.session.compiling import collector_paused

    torch.manual_seed(0)
    stack, x = KINDS[kind](torch, count)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = stack

        def forward(self, x: Any) -> Any:
            y = self.stack(x)
            return (y, poptorch.identity_loss((y * y).mean(), reduction="none")) if training else y

    seconds: dict[str, float] = {}
    times = [time.process_time()]

    def stamp(stage: str) -> None:
        times.append(time.process_time())
        seconds[stage] = times[-1] - times[-2]

    with collector_paused():
        net = capture(Model(), (x,), {}, training=training).net
        stamp("capture")
        groups = [Group(Sgd(lr=0.1, momentum=0.9), tuple(net.parameters))] if training else []
        pipeline = training_pipeline(Schedule(), groups) if training else inference_pipeline()
        final = pipeline.run(net)
        stamp("passes")
        graph = Graph(systems.bow_2000().with_ipus(1))
        made = lower_network(final, graph, Schedule(), groups, modes=RunModes(shared_functions=functions))
        stamp("build")
        executable = compile_program(graph, made.program, allow_out_of_memory=True)
        stamp("analyse")
        engine = Engine(executable)
        stamp("native")
    report = executable.report
    engine.close()
    steps = len(executable.plan)
    stages = {stage: round(value, 4) for stage, value in seconds.items()}
    total = round(sum(value for stage, value in seconds.items() if stage != "capture"), 4)
    names = {"kind": kind, "training": training, "count": count, **stages, "seconds": total}
    vertices = int(sum(s.num_vertices for s in executable.plan))
    full = int(report.memory.bytes.sum(axis=0).max())
    return {**names, "supersteps": steps, "cycles": int(report.cycles().total), "vertices": vertices, "bytes": full}


def rows(kind: str, *, training: bool, functions: bool, counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """A row for each number of blocks, the best of two after one that fills the caches."""
    measure(kind, counts[0], training=training, functions=functions)
    found = []
    for count in counts:
        tries = [measure(kind, count, training=training, functions=functions) for _ in range(2)]
        best = min(tries, key=lambda row: row["seconds"])
        found.append({**best, "ratio": round(best["seconds"] / (found[0]["seconds"] if found else best["seconds"]), 2)})
    return found


def show(found: list[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    table = Table(title="compiling equal blocks", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("block", "use", "N", *STAGES, "seconds", "ratio", "supersteps", "cycles", "vertices", "bytes"):
        table.add_column(heading, justify="left" if heading in ("block", "use") else "right")
    for row in found:
        use = "training" if row["training"] else "inference"
        times = [f"{row[stage]:.2f}" for stage in (*STAGES, "seconds")]
        sizes = [f"{row[name]:,}" for name in ("supersteps", "cycles", "vertices", "bytes")]
        table.add_row(row["kind"], use, str(row["count"]), *times, f"{row['ratio']:.1f}", *sizes)
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of blocks")
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS), help="numbers of blocks")
    parser.add_argument("--use", nargs="+", choices=("inference", "training"), default=["inference", "training"])
    parser.add_argument("--functions", action="store_true", help="one copy of repeated blocks on the machine")
    parser.add_argument("--here", action="store_true", help="measure in this process")
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    for kind in arguments.kinds:
        for use in arguments.use:
            if arguments.here:
                counts, training = tuple(arguments.counts), use == "training"
                found += rows(kind, training=training, functions=arguments.functions, counts=counts)
            else:
                command = [sys.executable, __file__, "--here", "--json", "--kinds", kind, "--use", use, "--counts"]
                command += [*map(str, arguments.counts), *(["--functions"] if arguments.functions else [])]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found += json.loads(out)["rows"]
    print_rows(found, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
