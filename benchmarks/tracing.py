"""Cost of recording: nanoseconds of a tracepoint, bytes of an event, seconds of reading and exporting.

    python benchmarks/tracing.py [--events 3000000]

The first lines are of one thread that does nothing but open and close tracepoints, the loop itself taken off. The last
ones are of a file with so many events in 4 threads, nested up to 3 deep.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from abele import trace
from abele.trace.perfetto import PerfettoWriter, perfetto_file, write_perfetto

CHANNEL = trace.Channel("bench")
OTHER = trace.Channel("other")


def loop(body: Callable[[int], None], rounds: int) -> float:
    """Nanoseconds of one round, the best of five."""
    times = []
    for _ in range(5):
        begin = time.perf_counter_ns()
        body(rounds)
        times.append((time.perf_counter_ns() - begin) / rounds)
    return min(times)


def nothing(rounds: int) -> None:
    for _ in range(rounds):
        pass


def tracepoints(rounds: int) -> None:
    for _ in range(rounds):
        with CHANNEL.tracepoint("step"):
            pass


def of_another_channel(rounds: int) -> None:
    for _ in range(rounds):
        with OTHER.tracepoint("step"):
            pass


def with_metadata(rounds: int) -> None:
    for number in range(rounds):
        with CHANNEL.tracepoint("step", {"number": number}):
            pass


def instants(rounds: int) -> None:
    for _ in range(rounds):
        CHANNEL.instant("now")


@CHANNEL.traced()
def called() -> None:
    pass


def plain() -> None:
    pass


def calls(rounds: int) -> None:
    for _ in range(rounds):
        called()


def plain_calls(rounds: int) -> None:
    for _ in range(rounds):
        plain()


def nested(events: int) -> None:
    """So many events, three deep, a dozen at a time."""
    for _ in range(events // 13):
        with CHANNEL.tracepoint("epoch"):
            for _ in range(4):
                with CHANNEL.tracepoint("step"):
                    with CHANNEL.tracepoint("forward"):
                        pass
                    with CHANNEL.tracepoint("backward"):
                        pass


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    gc.collect()
    begin = time.perf_counter()
    yield
    print(f"{what:<58} {time.perf_counter() - begin:8.2f} s")


def overheads() -> None:
    series, heat = CHANNEL.graph("loss").series("train"), CHANNEL.heatmap("weights", np.linspace(-1, 1, 65))
    values = np.random.default_rng(0).normal(size=10_000)

    def samples(rounds: int) -> None:
        for _ in range(rounds):
            series.add(1.0)

    def heats(rounds: int) -> None:
        for _ in range(rounds):
            heat.add(values)

    empty = loop(nothing, 200_000)
    print(f"{'tracepoint, nothing is recorded':<58} {loop(tracepoints, 200_000) - empty:8.0f} ns")
    print(
        f"{'call of a decorated function, nothing is recorded':<58} "
        f"{loop(calls, 200_000) - loop(plain_calls, 200_000):8.0f} ns"
    )
    with tempfile.TemporaryDirectory() as folder, trace.recording(folder, ["bench"]):
        print(
            f"{'tracepoint of a channel that is not recorded':<58} {loop(of_another_channel, 200_000) - empty:8.0f} ns"
        )
        rows = (
            ("tracepoint", tracepoints, 200_000),
            ("tracepoint with metadata", with_metadata, 50_000),
            ("call of a decorated function", calls, 200_000),
            ("instant", instants, 100_000),
            ("value of a series", samples, 100_000),
            ("10,000 values into a heat map of 64 bins", heats, 500),
        )
        for name, body, rounds in rows:
            print(f"{name:<58} {loop(body, rounds) - empty:8.0f} ns")


def reading(events: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.abele-trace"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with timed(f"recording {events:,} events in 4 threads"), trace.recording(path):
            threads = [threading.Thread(target=nested, args=(events // 4,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{'memory that recording took at most':<58} {(after - before) / 1024:8.1f} MiB")
        with timed("Trace.load"):
            loaded = trace.Trace.load(path)
        print(f"{'bytes per event in the file':<58} {path.stat().st_size / len(loaded.events):8.2f} B")
        assert loaded.note == ""
        assert int(loaded.events.depth.max()) == 2
        print(f"{'events read':<58} {len(loaded.events):8,}")
        exported = Path(folder) / "run.pftrace"
        with timed("write_perfetto"):
            write_perfetto(loaded, exported)
        print(f"{'bytes per event there':<58} {exported.stat().st_size / len(loaded.events):8.2f} B")


def exporting(spans: int) -> None:
    """The modelled timeline of so many spans on 64 sync groups."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.pftrace"
        lane = np.tile(np.arange(64), spans // 64)
        begin = np.repeat(np.arange(spans // 64) * 10, 64)
        with timed(f"a Perfetto trace of {len(lane):,} spans of a report's size"), perfetto_file(path) as writer:
            _spans(writer, lane, begin)


def _spans(writer: PerfettoWriter, lane: np.ndarray, begin: np.ndarray) -> None:
    rows = np.arange(len(lane))
    tracks = np.array([writer.track(f"IPU {number}") for number in range(64)])
    names = writer.names(f"step {number}" for number in range(5000))
    kinds = writer.categories(["compute", "exchange"])
    told = dict.fromkeys(("step", "cycles", "compute", "exchange", "sync", "host", "bytes"), rows)
    writer.slices(tracks[lane], names[rows % 5000], kinds[rows % 2], begin, np.full(len(lane), 9), numbers=told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=3_000_000)
    arguments = parser.parse_args()
    overheads()
    reading(arguments.events)
    exporting(1_000_000)


if __name__ == "__main__":
    main()
