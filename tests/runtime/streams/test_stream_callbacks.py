"""Callback objects: prefetch, fetch and complete in the order that Poplar promises; data that runs ahead."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from abele.errors import EngineError, StreamConnectionError
from abele.graph import Copy, Graph, LibraryCall, Program, Repeat, Sequence
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.numerics import f32
from abele.runtime import Engine, Result, StreamCallback

PATIENCE = 30.0


class Recorded(StreamCallback):
    """Gives 0, 1, 2, … and writes down what was called.

    Args:
        available: Items that prefetch may give before it says that there are none; None for any number.
        gate: Called in prefetch before anything else.
    """

    def __init__(self, available: int | None = None, gate: Callable[[], None] = lambda: None) -> None:
        self.calls: list[str] = []
        self.changed = threading.Condition()
        self._item = 0
        self._confirmed = 0
        self._available = available
        self._gate = gate

    def prefetch(self, buffer):
        self._gate()
        if self._available == 0:
            self._note("refuse")
            return Result.NotAvailable
        if self._available is not None:
            self._available -= 1
        self._give(buffer)
        self._note("prefetch")
        return Result.Success

    def fetch(self, buffer):
        self._give(buffer)
        self._note("fetch")

    def complete(self):
        self._confirmed += 1
        self._note("complete")

    def invalidate_prefetched(self):
        self._item = self._confirmed
        self._note("invalidate")

    def _give(self, buffer):
        buffer[...] = self._item
        self._item += 1

    def _note(self, call):
        with self.changed:
            self.calls.append(call)
            self.changed.notify_all()

    def wait_for(self, call: str, count: int) -> None:
        """Wait until something was called a number of times."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.calls.count(call) >= count, PATIENCE)


def _engine(rounds: int, depth: int = 1, **options: object) -> Engine:
    """An engine that copies two elements from ``in`` to ``out``, first meeting the host through ``ready``."""
    graph = Graph("bow-2000")
    x, flag = graph.variable("f32", 2, "x").map(0), graph.variable("f32", 1, "flag", initial=[0]).map(0)
    source = graph.host_stream_in("in", "f32", 2, buffering_depth=depth)
    sink, ready = graph.host_stream_out("out", "f32", 2), graph.host_stream_out("ready", "f32", 1)
    body = Sequence(Copy(flag, ready), Copy(source, x), Copy(x, sink))
    engine = Engine(graph, Repeat(rounds, body), mode="tiles", threads=2, options=options or None)
    engine.connect("ready", lambda values: None)
    return engine


def _received(engine: Engine) -> list[float]:
    found: list[float] = []
    engine.connect("out", lambda values: found.append(float(values[0])))
    return found


def test_callback__depth_one__is_fetched_and_completed_once_a_copy():
    callback = Recorded()
    with _engine(3) as engine:
        received = _received(engine)
        engine.connect("in", callback)
        engine.run()
    assert callback.calls == ["fetch", "complete"] * 3
    assert received == [0, 1, 2]


def test_callback__prefetch_turned_off__is_fetched():
    callback = Recorded()
    with _engine(3, depth=4, **{"exchange.enablePrefetch": False}) as engine:
        _received(engine)
        engine.connect("in", callback)
        engine.run()
    assert callback.calls == ["fetch", "complete"] * 3


def test_callback__depth_two__prefetches_one_ahead_and_never_fetches():
    callback = Recorded()
    with _engine(3, depth=2) as engine:
        received = _received(engine)
        asked = iter(range(1, 4))
        engine.connect("ready", lambda values: callback.wait_for("prefetch", next(asked)))
        engine.connect("in", callback)
        engine.run()
    # A fourth prefetch may have begun when the run ended; if so it was taken back.
    assert callback.calls[:6] == ["prefetch", "complete"] * 3
    assert callback.calls[6:] in ([], ["prefetch", "invalidate"])
    assert received == [0, 1, 2]


def test_callback__depth_four__prefetches_three_ahead_before_the_program_asks():
    callback = Recorded()
    with _engine(1, depth=4) as engine:
        _received(engine)
        engine.connect("ready", lambda values: callback.wait_for("prefetch", 3))
        engine.connect("in", callback)
        engine.run()
    assert callback.calls[:4] == ["prefetch", "prefetch", "prefetch", "complete"]
    assert callback.calls[-1] == "invalidate"


def test_callback__maximum_lookahead__is_kept():
    callback = Recorded()
    with _engine(1, depth=8, **{"streamCallbacks.maxLookahead": 1}) as engine:
        _received(engine)
        engine.connect("ready", lambda values: callback.wait_for("prefetch", 1))
        engine.connect("in", callback)
        engine.run()
    assert callback.calls[:2] == ["prefetch", "complete"]


def test_callback__prefetch_without_data__is_fetched():
    callback = Recorded(available=1)
    with _engine(3, depth=2) as engine:
        received = _received(engine)
        needed = iter([lambda: callback.wait_for("prefetch", 1), *[lambda: callback.wait_for("refuse", 1)] * 2])
        engine.connect("ready", lambda values: next(needed)())
        engine.connect("in", callback)
        engine.run()
    used = [c for c in callback.calls if c != "refuse"]
    assert used == ["prefetch", "complete", "fetch", "complete", "fetch", "complete"]
    assert received == [0, 1, 2]


def test_callback__left_over_at_the_end_of_a_run__is_invalidated_and_given_again():
    callback = Recorded()
    with _engine(1, depth=3) as engine:
        received = _received(engine)
        engine.connect("in", callback)
        for run in range(3):
            have = callback.calls.count("prefetch")
            engine.connect("ready", lambda values, want=have + 2: callback.wait_for("prefetch", want))
            engine.run()
            assert callback.calls.count("complete") == run + 1
            assert callback.calls[-1] == "invalidate"
    assert "fetch" not in callback.calls
    assert received == [0, 1, 2]


def test_callback__complete__comes_after_its_copy_and_before_the_next_fetch():
    graph = Graph("bow-2000")
    x = graph.variable("f32", 2, "x").map(0)
    source, sink = graph.host_stream_in("in", "f32", 2), graph.host_stream_out("out", "f32", 2)
    calls: list[str] = []

    class Source(StreamCallback):
        def fetch(self, buffer):
            calls.append("fetch in")

        def complete(self):
            calls.append("complete in")

    class Sink(StreamCallback):
        def fetch(self, buffer):
            calls.append("fetch out")

        def complete(self):
            calls.append("complete out")

    with Engine(graph, Repeat(2, Sequence(Copy(source, x), Copy(x, sink))), mode="tiles") as engine:
        engine.connect("in", Source())
        engine.connect("out", Sink())
        engine.run()
    assert calls == ["fetch in", "complete in", "fetch out", "complete out"] * 2


def test_callback__object_with_only_fetch_and_cpp_names__will_do():
    class Plain:
        invalidated = 0

        def prefetch(self, buffer):
            buffer[...] = 7
            return True

        def fetch(self, buffer):
            buffer[...] = 7

        def invalidatePrefetched(self):
            self.invalidated += 1

    plain = Plain()
    with _engine(1, depth=2) as engine:
        received = _received(engine)
        engine.connect("in", plain)
        engine.run()
    assert received == [7]
    assert plain.invalidated <= 1


def test_callback__fetch_that_is_missing__says_so():
    class Empty(StreamCallback):
        pass

    with _engine(1) as engine:
        _received(engine)
        engine.connect("in", Empty())
        with pytest.raises(NotImplementedError, match=r"Empty\.fetch"):
            engine.run()


class Broken(StreamCallback):
    """Raises in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.tried = threading.Event()

    def prefetch(self, buffer):
        try:
            return self._call("prefetch")
        finally:
            self.tried.set()

    def fetch(self, buffer):
        self._call("fetch")

    def complete(self):
        self._call("complete")

    def invalidate_prefetched(self):
        self._call("invalidate_prefetched")

    def _call(self, method):
        if method == self.method:
            raise LookupError(f"no {method} today")
        return True


@pytest.mark.parametrize(
    ("method", "depth"), [("fetch", 1), ("complete", 1), ("prefetch", 2), ("invalidate_prefetched", 3)]
)
def test_callback__that_raises__ends_the_run_with_its_own_error_and_a_note(method, depth):
    callback = Broken(method)
    with _engine(1, depth=depth) as engine:
        _received(engine)
        if depth > 1:
            engine.connect("ready", lambda values: callback.tried.wait(PATIENCE))
        engine.connect("in", callback)
        with pytest.raises(LookupError, match=f"no {method} today") as caught:
            engine.run()
        assert any("Stream('in'" in note and __file__ in note for note in caught.value.__notes__)
        engine.connect("in", np.ones(2, np.float32))
        assert engine.run()
        np.testing.assert_array_equal(engine["x"], 1)


def test_iterable__depth_three__runs_ahead_and_loses_nothing():
    taken = threading.Semaphore(0)

    def items():
        for i in range(6):
            taken.release()
            yield [i, i]

    with _engine(2, depth=3) as engine:
        received = _received(engine)
        engine.connect("in", items())
        for _ in range(3):
            engine.run()
        assert received == [0, 1, 2, 3, 4, 5]
        with pytest.raises(StreamConnectionError, match="ran out after 6 items"):
            engine.run()


def test_generator__depth_two__is_asked_before_the_program_needs_it():
    asked = threading.Event()

    def items():
        asked.set()
        yield [5, 5]

    with _engine(1, depth=2) as engine:
        received = _received(engine)
        seen: list[bool] = []
        engine.connect("ready", lambda values: seen.append(asked.wait(PATIENCE)))
        engine.connect("in", items())
        engine.run()
    assert seen == [True]
    assert received == [5]


def test_generator__that_raises_ahead__raises_when_the_program_asks_and_not_before():
    def items():
        yield [0, 0]
        raise OSError("disk on fire")

    with _engine(1, depth=3) as engine:
        received = _received(engine)
        engine.connect("in", items())
        assert engine.run()
        assert received == [0]
        with pytest.raises(OSError, match="disk on fire"):
            engine.run()


def test_connect__anew__invalidates_and_starts_over():
    first, second = Recorded(), Recorded()
    with _engine(1, depth=2) as engine:
        received = _received(engine)
        engine.connect("in", first)
        engine.run()
        engine.connect("in", second)
        engine.run()
    assert received == [0, 0]
    assert first.calls.count("complete") == second.calls.count("complete") == 1


def test_connect__interval__reads_and_writes_that_part_in_place():
    data, result = np.arange(12, dtype=np.float32), np.zeros(8, np.float32)
    with _engine(3) as engine:
        engine.connect("in", data, begin=2, end=6)
        engine.connect("out", result, begin=4)
        data[2:6] += 100
        engine.run()
    np.testing.assert_array_equal(result, [0, 0, 0, 0, 102, 103, 104, 105])


@pytest.mark.parametrize(
    ("interval", "text"),
    [({"begin": 5, "end": 3}, "elements 5 to 3 of an array of 4"), ({"end": 1}, "it has 1 elements, one copy moves 2")],
)
def test_connect__interval_that_does_not_fit__is_refused(interval, text):
    with _engine(1) as engine, pytest.raises(StreamConnectionError, match=text):
        engine.connect("in", np.zeros(4, np.float32), **interval)


def test_connect__interval_without_an_array__is_refused():
    with _engine(1) as engine, pytest.raises(StreamConnectionError, match="begin and end need an array"):
        engine.connect("in", [[0, 0]], begin=1)


def test_load__array_that_was_read_in_part__begins_at_its_beginning():
    data, result = np.arange(6, dtype=np.float32), np.zeros(2, np.float32)
    for array in (data, data[:5]):
        with _engine(1) as engine:
            engine.connect("in", array)
            engine.connect("out", result)
            for _ in range(2):
                engine.run()
            np.testing.assert_array_equal(result, [2, 3])
            engine.load()
            engine.run()
            np.testing.assert_array_equal(result, [0, 1])


def _plus_one(graph: Graph, body: Sequence, source, target) -> LibraryCall:
    kernel = HostKernel(((2,),) * 2, (f32,) * 2, 1, 1, (nest({"i": 2}, store(1, ("i",), load(0, "i") + 1.0)),))
    with graph.library_call(body, "plus_one", inputs=(source,), outputs=(target,), kernel=kernel):
        pass


def test_callback__two_copies_of_a_stream_among_fused_kernels__each_gets_its_own_data():
    graph = Graph("bow-2000")
    a, b, c, d = (graph.variable("f32", 2, n).map(0) for n in "abcd")
    source, sink = graph.host_stream_in("in", "f32", 2), graph.host_stream_out("out", "f32", 2)
    body = Sequence(Copy(source, a), Copy(source, b))
    _plus_one(graph, body, a, c)
    _plus_one(graph, body, b, d)
    body.add(Copy(c, sink))
    body.add(Copy(d, sink))
    with Engine(graph, Repeat(2, body), mode="native", threads=2) as engine:
        received = _received(engine)
        callback = Recorded()
        engine.connect("in", callback)
        engine.run()
        assert received == [1, 2, 3, 4]
        assert callback.calls.count("complete") == callback.calls.count("fetch") == 4


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_stop__while_a_prefetch_does_not_return__ends_the_run_and_nothing_is_lost():
    begun, release = threading.Event(), threading.Event()

    def items():
        yield [0, 0]
        begun.set()
        assert release.wait(PATIENCE)
        for i in range(1, 4):
            yield [i, i]

    with _engine(2, depth=2) as engine:
        received = _received(engine)
        engine.connect("in", items())
        stopper = _in_thread(lambda: (begun.wait(PATIENCE), engine.stop())[0])
        assert engine.run() is False
        stopper.join()
        release.set()
        assert engine.run()
        assert received == [0, 1, 2]


@pytest.mark.usefixtures("interrupts")
def test_interrupt__while_a_prefetch_does_not_return__leaves_the_engine_usable():
    begun, release = threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def items():
        yield [0, 0]
        begun.set()
        assert release.wait(PATIENCE)
        yield [1, 1]

    with _engine(2, depth=2) as engine:
        received = _received(engine)
        engine.connect("in", items())
        interrupter = _in_thread(lambda: begun.wait(PATIENCE) and signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            engine.run()
        interrupter.join()
        release.set()
        engine.connect("in", np.full(2, 5, np.float32))
        assert engine.run()
        assert received[-2:] == [5, 5]


def test_stop__from_a_callback__ends_the_run_and_the_engine_goes_on():
    callback = Recorded()
    with _engine(1000, depth=2) as engine:
        received = _received(engine)
        engine.connect("ready", lambda values: engine.stop() if len(received) == 3 else None)
        engine.connect("in", callback)
        assert engine.run() is False
        assert len(received) < 1000
        engine.connect("ready", lambda values: None)
        assert engine.run()


def test_stop__from_a_prefetch__ends_the_run_without_dead_lock():
    with _engine(1 << 20, depth=2) as engine:
        received = _received(engine)
        engine.connect("in", Recorded(gate=engine.stop))
        assert engine.run() is False
        engine.connect("in", np.zeros(2, np.float32))
        engine.connect("out", lambda values: engine.stop())
        assert engine.run() is False
        assert len(received) < 1 << 20


def test_run__while_another_runs__is_refused_and_so_is_load():
    inside, release = threading.Event(), threading.Event()

    def wait(values):
        inside.set()
        assert release.wait(PATIENCE)

    with _engine(1) as engine:
        _received(engine)
        engine.connect("in", np.zeros(2, np.float32))
        engine.connect("ready", wait)
        runner = _in_thread(engine.run)
        assert inside.wait(PATIENCE)
        with pytest.raises(EngineError, match="cannot run: it is running already"):
            engine.run()
        with pytest.raises(EngineError, match="cannot be loaded: it is running already"):
            engine.load()
        release.set()
        runner.join()


def test_threads__one_for_all_streams__serves_them_all():
    graph = Graph("bow-2000")
    x, y = (graph.variable("f32", 2, n).map(0) for n in "xy")
    streams = [graph.host_stream_in(n, "f32", 2, buffering_depth=3) for n in ("a", "b")]
    body: Program = Sequence(Copy(streams[0], x), Copy(streams[1], y))
    with Engine(graph, Repeat(4, body), options={"streamCallbacks.multiThreadMode": "singleThread"}) as engine:
        for stream in streams:
            engine.connect(stream, ([i, i] for i in range(4)))
        engine.run()
        np.testing.assert_array_equal([engine["x"], engine["y"]], np.full((2, 2), 3))
