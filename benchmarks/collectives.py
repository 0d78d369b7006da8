"""Cost of an all-reduce: methods, sizes and numbers of replicas beside the bytes that the links must carry.

Every case is built and compiled for replicas of one Bow IPU, on as many IPUs. ``bound`` is from first principles: the
part of the data that busiest links carry, both ways round a ring within a rack, and over gateways between racks, at
their usable rates, without any barrier, launch or addition. ``bus`` is the rate that is commonly given for collectives,
2 (n - 1) / n of the bytes in the time. ``auto`` is the method that the library would choose. With --json one object is
printed, {"rows": [...]}.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.machine import System, systems
from abele.poplibs import gcl
from abele.poplibs.gcl.levels import Levels

REPLICAS = {4: "bow-2000", 16: "bow-pod16", 64: "bow-pod64", 256: "bow-pod256"}
SIZES = {"1 KB": 10**3, "64 KB": 64 * 10**3, "1 MB": 10**6, "16 MB": 16 * 10**6, "100 MB": 10**8, "500 MB": 5 * 10**8}
METHODS = ("clockwise_ring", "bidirectional_ring_pair", "meet_in_middle_ring")


def bound_seconds(num_bytes: int, replicas: int, system: System) -> float:
    """Time in which the busiest links can carry an all-reduce of one replica per IPU, all else being free."""
    links, gateway = system.ipu_links, system.gateway
    inner = min(replicas, links.ipus_per_rack)
    racks = replicas // inner
    rail = links.bundle_bytes_per_second(links.rail_links)
    seconds = 2 * (inner - 1) / inner * num_bytes / (2 * rail)
    if gateway is not None and racks > 1:
        # The IPUs of a machine share its gateway, each with the part that its rack has reduced.
        part = num_bytes / inner * gateway.ipus_per_machine
        seconds += 2 * (racks - 1) / racks * part / gateway.bytes_per_second
    return seconds


def measured(num_bytes: int, replicas: int) -> dict[str, Any]:
    """The row of a size and a number of replicas."""
    row: dict[str, Any] = {"bytes": num_bytes, "replicas": replicas}
    for method in METHODS:
        graph, program = Graph(systems.get(REPLICAS[replicas]), replicas=replicas), Sequence()
        data = graph.variable("f32", (num_bytes // 4,), "gradients").map_linear()
        gcl.all_reduce_cross_replica_in_place(graph, data, "add", program, options={"method": method})
        report = compile_program(graph, program, allow_out_of_memory=True).report
        row[method] = report.seconds(report.cycles().total)
    plan = gcl.explain_all_reduce(graph, data)
    row["auto"] = " / ".join(level.method for level in plan.levels) if isinstance(plan, Levels) else "swaps"
    row["bound"] = bound_seconds(num_bytes, replicas, graph.whole_system)
    # In levels each ring has a method of its own; where they differ, that is built as well.
    if len({level.method for level in plan.levels}) == 1:
        row["seconds"] = row[plan.levels[0].method]
    else:
        graph, program = Graph(systems.get(REPLICAS[replicas]), replicas=replicas), Sequence()
        data = graph.variable("f32", (num_bytes // 4,), "gradients").map_linear()
        gcl.all_reduce_cross_replica_in_place(graph, data, "add", program)
        report = compile_program(graph, program, allow_out_of_memory=True).report
        row["seconds"] = report.seconds(report.cycles().total)
    row["bus"] = 2 * (replicas - 1) / replicas * num_bytes / row["seconds"]
    return row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="*", choices=list(REPLICAS), default=list(REPLICAS))
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = [measured(SIZES[size], replicas) for replicas in chosen.replicas for size in chosen.sizes]
    if chosen.json:
        print(json.dumps({"rows": rows}))
        return
    table = Table("replicas", "bytes", *METHODS, "bound", "auto", "bus GB/s", "of bound", title="all-reduce, µs")
    for row in rows:
        times = [f"{row[key] * 1e6:,.1f}" for key in (*METHODS, "bound")]
        share = row["bound"] / row["seconds"]
        figures = [f"{row['bus'] / 1e9:,.2f}", f"{share:.0%}"]
        table.add_row(f"{row['replicas']}", f"{row['bytes']:,}", *times, row["auto"], *figures)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
