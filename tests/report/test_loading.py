"""Cost of loading: the recurrence beside a simulated queue of workers, and figures worked out by hand."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import MachineError
from abele.machine import hosts, sources
from abele.report import Loading, epoch, loading

FREE = {
    "num_cores": 10_000,
    "memory_bytes_per_second": 1e18,
    "copy_bytes_per_second": 1e18,
    "run_call_seconds": 0.0,
    "worker_start_seconds": 0.0,
    "worker_resume_seconds": 0.0,
    "worker_batch_seconds": 0.0,
    "tensor_transfer_seconds": 0.0,
}
"""A host on which nothing costs anything but what a test says."""


def made(*, host: dict[str, float] | None = None, **changes: Any) -> Loading:
    """Eight workers that make ten batches of 5 samples of 0.2 s."""
    fields: dict[str, Any] = {
        "samples_per_batch": 5,
        "batches_per_epoch": 10,
        "sample_seconds": 0.2,
        "sample_bytes": 4.0,
        "tensors_per_batch": 1,
        "num_workers": 8,
        "host": _host(host or {}),
    }
    return Loading(**{**fields, **changes})


def _host(changes: dict[str, float]) -> Any:
    return hosts.get("epyc-7742").evolve(**{**FREE, **changes})


class Simulation:
    """Processes with queues between them, moved by events in order of time: nothing of the recurrence is in it."""

    def __init__(self, load: Loading, call_seconds: float) -> None:
        self.load, self.call_seconds = load, call_seconds
        self.now, self._events, self._count = 0.0, list[Any](), 0
        self._tasks = [deque[int]() for _ in range(load.num_workers)]
        self._busy = [False] * load.num_workers
        self._results = set[int]()
        self._wanted: tuple[int, Callable[[], None]] | None = None
        self._ready, self._slots = 0, load.ring_batches
        self._handed: Callable[[], None] | None = None
        self._blocked: Callable[[], None] | None = None
        self.ends = list[float]()

    def run(self, epochs: int) -> float:
        """Seconds of the last epoch."""
        self._left = epochs
        if self.load.ring_batches:
            self._ask(0)
            if self.load.next_epoch_ahead:
                self._load_epoch(epochs)
        else:
            self._load_epoch(epochs)
        while self._events:
            self.now, _, do = heapq.heappop(self._events)
            do()
        return self.ends[-1] - (self.ends[-2] if epochs > 1 else 0.0)

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, do))

    # --- workers

    @property
    def _loads(self) -> int:
        """Number of loads that workers make in an epoch."""
        return -(-self.load.samples_per_epoch // self.load.load_samples)

    def _tell(self, batch: int) -> None:
        if batch < self._loads and self._tasks:
            worker = batch % len(self._tasks)
            self._tasks[worker].append(batch)
            self._work(worker)

    def _work(self, worker: int) -> None:
        if self._busy[worker] or not self._tasks[worker]:
            return
        self._busy[worker], batch = True, self._tasks[worker].popleft()

        def finish() -> None:
            self._busy[worker] = False
            self._results.add(batch)
            self._work(worker)
            if self._wanted is not None and self._wanted[0] in self._results:
                _, then = self._wanted
                self._wanted = None
                then()

        self._after(self.load.load_seconds, finish)

    # --- who iterates the loader

    def _load_epoch(self, epochs: int) -> None:
        if epochs:

            def begin() -> None:
                for batch in range(self.load.num_workers * self.load.batches_ahead):
                    self._tell(batch)
                self._gathered = self._joined = 0
                self._next(0, epochs)

            self._after(self.load.start_seconds, begin)

    def _next(self, batch: int, epochs: int) -> None:
        if batch == self._loads:
            if not self.load.ring_batches:
                self.ends.append(self.now)
            if not self.load.ring_batches or self.load.next_epoch_ahead:
                self._load_epoch(epochs - 1)
            return

        def take() -> None:
            self._results.discard(batch)
            self._after(self.load.take_seconds, lambda: self._taken(batch, epochs))

        if not self._tasks:
            self._after(self.load.load_seconds, take)
        elif batch in self._results:
            take()
        else:
            self._wanted = batch, take

    def _taken(self, batch: int, epochs: int) -> None:
        self._tell(batch + self.load.num_workers * self.load.batches_ahead)
        if not self.load.ring_batches:
            self._after(self.call_seconds, lambda: self._next(batch + 1, epochs))
        else:
            self._gathered += self.load.load_samples
            self._join(batch, epochs)

    def _join(self, batch: int, epochs: int) -> None:
        """Put whole batches into the ring, and then go on with what workers made."""
        if self._gathered < self.load.samples_per_batch or self._joined == self.load.batches_per_epoch:
            self._next(batch + 1, epochs)
        elif self._slots:
            self._place(batch, epochs)
        else:
            self._blocked = lambda: self._place(batch, epochs)

    def _place(self, batch: int, epochs: int) -> None:
        self._slots -= 1
        self._gathered -= self.load.samples_per_batch
        self._joined += 1

        def placed() -> None:
            self._ready += 1
            if self._handed is not None:
                handed, self._handed = self._handed, None
                handed()
            self._join(batch, epochs)

        self._after(self.load.batch_bytes / self.load.host.copy_bytes_per_second, placed)

    # --- the caller behind a ring

    def _ask(self, batch: int) -> None:
        if batch:
            self._slots += 1
            if self._blocked is not None:
                blocked, self._blocked = self._blocked, None
                blocked()
        batches = self.load.batches_per_epoch
        if batch and batch % batches == 0:
            self.ends.append(self.now)
        if batch == batches * self._left:
            return
        if batch % batches == 0 and not self.load.next_epoch_ahead:
            self._load_epoch(1)

        def call() -> None:
            self._ready -= 1
            self._after(self.call_seconds, lambda: self._ask(batch + 1))

        if self._ready:
            call()
        else:
            self._handed = call


SECONDS = st.floats(0, 3).map(lambda s: round(s, 3))


@given(
    workers=st.integers(0, 6),
    batches=st.integers(1, 25),
    ahead=st.integers(1, 3),
    ring=st.integers(0, 4),
    worker_samples=st.sampled_from([0, 0, 1, 2, 3, 5, 7, 12]),
    next_ahead=st.booleans(),
    persistent=st.booleans(),
    times=st.tuples(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS),
)
def test_epoch__any_loader__equals_a_simulated_queue_of_workers(
    workers: int,
    batches: int,
    ahead: int,
    ring: int,
    worker_samples: int,
    next_ahead: bool,
    persistent: bool,
    times: tuple[float, float, float, float, float],
) -> None:
    making, starting, taking, calling, device = times
    load = made(
        num_workers=workers,
        batches_per_epoch=batches,
        batches_ahead=ahead,
        ring_batches=ring,
        worker_samples=worker_samples if ring else 0,
        next_epoch_ahead=next_ahead,
        persistent_workers=persistent,
        sample_seconds=making / 5,
        host={
            "worker_start_seconds": starting,
            "worker_resume_seconds": starting / 2,
            "tensor_transfer_seconds": taking,
            "run_call_seconds": calling,
            "copy_bytes_per_second": 40.0,
        },
    )
    found = epoch(load, device)
    expected = Simulation(load, load.call_seconds + device).run(epochs=3)
    assert found.total == pytest.approx(expected, rel=1e-9, abs=1e-9)
    parts = found.starting + found.waiting + found.taking + found.calling + found.device
    assert parts == pytest.approx(found.total, rel=1e-9, abs=1e-9)


def test_epoch__ten_batches_over_eight_workers__take_two_rounds() -> None:
    assert epoch(made(), 0.0).total == pytest.approx(2.0)  # 5 samples of 0.2 s, twice
    assert epoch(made(batches_per_epoch=8), 0.0).total == pytest.approx(1.0)
    assert epoch(made(batches_per_epoch=2), 0.0).total == pytest.approx(1.0)
    # All eight are there after 1 s and keep the device busy for 0.8 s; the two others are there at 2 s.
    assert epoch(made(), 0.1).total == pytest.approx(2.2)
    # A slow device hides the second round.
    assert epoch(made(), 0.5).total == pytest.approx(1.0 + 10 * 0.5)


def test_epoch__no_workers__adds_up() -> None:
    found = epoch(made(num_workers=0, host={"run_call_seconds": 0.25}), 0.5)
    assert (found.waiting, found.device, found.starting) == (pytest.approx(10.0), pytest.approx(5.0), 0.0)
    assert found.calling == pytest.approx(2.5)
    assert found.total == pytest.approx(17.5)


def test_epoch__ring_that_loads_ahead__hides_loading_behind_the_device() -> None:
    assert epoch(made(ring_batches=4), 0.3).total == pytest.approx(3.0)
    # When the last batch of an epoch is in the ring, three last 0.9 s, and the first ones of the next take 1 s.
    assert epoch(made(ring_batches=3), 0.3).total == pytest.approx(3.1)
    assert epoch(made(ring_batches=3, next_epoch_ahead=False), 0.3).total == pytest.approx(4.0)


def test_epoch__fewer_cores_than_workers__shares_them() -> None:
    assert epoch(made(batches_per_epoch=8, host={"num_cores": 2}), 0.0).total == pytest.approx(4.0)
    assert epoch(made(batches_per_epoch=2, host={"num_cores": 2}), 0.0).total == pytest.approx(1.0)


def test_epoch__memory_that_is_slow__bounds_all_workers_together() -> None:
    slow = made(batches_per_epoch=8, host={"memory_bytes_per_second": 80.0})
    assert epoch(slow, 0.0).total == pytest.approx(8 * 20 * 2 / 80)


@given(st.integers(1, 9), st.integers(1, 3), st.sampled_from([0.0, 0.1, 0.3, 1.0]), st.integers(30, 120))
def test_epoch__long__goes_on_as_its_beginning_does(workers: int, ahead: int, device: float, batches: int) -> None:
    load = made(num_workers=workers, batches_ahead=ahead, batches_per_epoch=batches)
    followed = loading._followed(load, batches, device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "_FOLLOWED_BATCHES", 12 + 2 * workers * ahead)
        patch.setattr(loading, "_ROUND_BATCHES", 1)
        assert epoch(load, device).total == pytest.approx(followed, rel=1e-9)


def test_epoch__a_billion_batches__are_not_followed_one_by_one() -> None:
    found = epoch(made(num_workers=4, batches_per_epoch=10**9), 0.0)
    assert found.total == pytest.approx(10**9 / 4)


@given(SECONDS, st.floats(1, 4), st.integers(1, 30), st.integers(1, 8))
def test_epoch__dearer_samples__never_quicker(device: float, factor: float, batches: int, workers: int) -> None:
    load = made(batches_per_epoch=batches, num_workers=workers)
    dearer = load.evolve(sample_seconds=load.sample_seconds * factor)
    assert epoch(dearer, device).total >= epoch(load, device).total - 1e-9


def test_loading__sources__name_each_constant_with_its_confidence() -> None:
    found = {item.path: item for item in sources(made(host={"num_cores": 7}))}
    assert found["host.num_cores"].source.confidence == "U"
    default = {item.path: item for item in sources(Loading.evolve(made(), host=hosts.get("epyc-7742")))}
    assert default["host.num_cores"].source.confidence == "D"
    assert default["host.run_call_seconds"].source.confidence == "G"
    assert "factor" in default["host.run_call_seconds"].source.text
    assert default["host.tensor_transfer_seconds"].source.confidence == "M"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_workers": -1}, r"Loading\.num_workers = -1: must be at least 0"),
        ({"num_workers": 5000}, r"Loading\.num_workers = 5000: must be at most 4096"),
        ({"batches_per_epoch": 0}, r"Loading\.batches_per_epoch = 0: must be above 0"),
        ({"sample_seconds": float("nan")}, r"Loading\.sample_seconds = nan: must be a finite number"),
        ({"worker_samples": 3}, r"Loading\.worker_samples = 3: workers make whole batches unless a ring joins them"),
        ({"batches_per_epoch": 10**24}, r"Loading\.batches_per_epoch = 1e\+24: must be at most 1e\+18"),
        ({"persistent_workers": 3}, r"Loading\.persistent_workers = 3: must be true or false"),
    ],
)
def test_loading__impossible__is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(MachineError, match=text):
        made(**changes)


def test_from_table__host_by_name_or_left_out__is_the_preset() -> None:
    table = {
        "samples_per_batch": 2,
        "batches_per_epoch": 3,
        "sample_seconds": 1e-3,
        "sample_bytes": 8,
        "tensors_per_batch": 1,
        "num_workers": 0,
    }
    assert Loading.from_table(table).host is hosts.get(hosts.DEFAULT)
    assert Loading.from_table({**table, "host": "epyc-7742"}).host.num_cores == 128
    with pytest.raises(MachineError, match=r"no host is called 'epic-7742'\n  try      did you mean 'epyc-7742'\?"):
        Loading.from_table({**table, "host": "epic-7742"})
    with pytest.raises(MachineError, match="Loading has no field 'workers'"):
        Loading.from_table({**table, "workers": 2})
