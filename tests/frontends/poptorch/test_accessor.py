"""Loading ahead in another process: what is handed on, in which order, and what is left when something ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loading_kit import (
    Batches,
    Calls,
    Numbers,
    Stream,
    Unstartable,
    Vanishing,
    collected,
    drawn,
    end_of_file,
    is_a_fork,
    process,
    slow,
)
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.frontends.poptorch.loading import accessor as accessor_module
from abele.poptorch import AsynchronousDataAccessor, DataLoaderMode, SharingStrategy
from support import sweeps

FORK = {"sharing_strategy": SharingStrategy.Fork}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 10
    while any(p.name == "poptorch-data" for p in multiprocessing.active_children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [p for p in multiprocessing.active_children() if p.name == "poptorch-data"]


def options(iterations: int = 1) -> poptorch.Options:
    return poptorch.Options().deviceIterations(iterations)


def accessor(dataset: Any, **given: Any) -> AsynchronousDataAccessor:
    return AsynchronousDataAccessor(dataset, **{**FORK, **given})


def labels(batches: Any) -> list[list[int]]:
    return [y.tolist() for _, y in batches]


@pytest.mark.parametrize("kind", ["tensor", "tuple", "list", "dict", "nested", "growing"])
def test_accessor__batches_of_any_form__are_those_of_the_data(kind: str) -> None:
    made = accessor(Batches(kind), buffer_size=2)
    assert len(made) == 4
    count = 0
    for given, wanted in zip(made, Batches(kind), strict=True):
        assert poptorch.testing.allclose(wanted, given)
        count += 1
    assert count == 4
    made.terminate()


def test_accessor__batches__share_the_memory_of_the_ring() -> None:
    made = accessor(Batches("tensor"), buffer_size=2)
    places = [batch.data_ptr() for batch in made]
    assert len(set(places)) == 2
    made.terminate()


@pytest.mark.parametrize("indefinitely", [True, False])
def test_accessor__several_epochs__each_give_all_batches(indefinitely: bool) -> None:
    made = accessor(Batches("tensor"), load_indefinitely=indefinitely, early_preload=True)
    for _ in range(3):
        assert [int(batch[0, 0]) for batch in made] == [0, 1, 2, 3]
    made.terminate()


def test_accessor__epoch_left_early__begins_anew() -> None:
    made = accessor(Batches("tensor"))
    for _ in range(2):
        assert int(next(iter(made))[0, 0]) == 0
    assert [int(batch[0, 0]) for batch in made] == [0, 1, 2, 3]
    made.terminate()


def test_accessor__data_by_index__is_loaded_in_order() -> None:
    made = accessor(Numbers(3))
    assert [sample[0].tolist() for sample in made] == [[0, 0], [1, 10], [2, 20]]
    made.terminate()


def test_accessor__rebatched__hands_on_batches_of_that_size() -> None:
    made = accessor([torch.arange(3.0), torch.arange(3.0, 10.0), torch.arange(10.0, 12.0)], rebatched_size=5)
    assert [batch.tolist() for batch in made] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    made.terminate()


def test_accessor__by_default__loads_in_another_process() -> None:
    made = AsynchronousDataAccessor(TensorDataset(torch.arange(4.0)))
    assert [float(sample) for (sample,) in made] == [0, 1, 2, 3]
    made.terminate()


@pytest.mark.parametrize("strategy", SharingStrategy)
def test_accessor__what_cannot_be_pickled__is_loaded_in_a_fork(strategy: SharingStrategy) -> None:
    made = AsynchronousDataAccessor(Calls(2, lambda index: torch.tensor(index)), sharing_strategy=strategy)
    assert [int(sample) for sample in made] == [0, 1]
    made.terminate()


@pytest.mark.slow  # Both processes import PyTorch.
@pytest.mark.parametrize("strategy", [SharingStrategy.SharedMemory, SharingStrategy.FileSystem])
def test_accessor__spawned__loads_and_forks_its_own_workers(strategy: SharingStrategy) -> None:
    with poptorch.DataLoader(
        options(),
        Calls(4, process),
        2,
        num_workers=1,
        mode=DataLoaderMode.Async,
        async_options={"sharing_strategy": strategy},
    ) as made:
        (_, started), *_ = next(iter(made)).tolist()
        assert started == made._accessor._worker._process.pid


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2, 6])
def test_loader__by_default__imports_nothing_anew(workers: int) -> None:
    with poptorch.DataLoader(
        options(), Calls(32, is_a_fork), 4, num_workers=workers, mode=DataLoaderMode.Async
    ) as made:
        assert all(bool(batch.all()) for batch in made)


def test_loader__made_by_a_thread_that_ended__still_loads() -> None:
    made: list[poptorch.DataLoader] = []
    thread = threading.Thread(target=lambda: made.append(loader(Numbers(40), num_workers=1)))
    thread.start()
    thread.join()
    with made[0]:
        assert len(labels(made[0])) == 10


def test_loaders__several_at_once__end_one_by_one() -> None:
    loaders = [loader(Numbers(16), shuffle=number == 1) for number in range(3)]
    each = [iter(made) for made in loaders]
    assert all(next(batches)[1].shape == (4,) for batches in each)
    for made in loaders:
        assert len(labels(made)) == 4
        made.terminate()


# --- random numbers ---------------------------------------------------------------------------------------------------


def drawn_by(make: Callable[[int], torch.Tensor] = drawn) -> list[float]:
    made = accessor(Calls(3, make))
    numbers = [float(number) for number in made]
    made.terminate()
    return numbers


def test_accessor__random_samples__follow_the_seed_and_leave_the_program_its_numbers() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3).tolist()
    torch.manual_seed(5)
    first = drawn_by()
    assert torch.rand(3).tolist() == expected
    assert not set(first) & set(expected)
    torch.manual_seed(5)
    assert drawn_by() == first
    torch.manual_seed(6)
    assert drawn_by() != first


# --- loaders ----------------------------------------------------------------------------------------------------------


def loader(dataset: Any, mode: DataLoaderMode = DataLoaderMode.Async, **given: Any) -> poptorch.DataLoader:
    return poptorch.DataLoader(options(2), dataset, **{"batch_size": 2, "mode": mode, "async_options": FORK, **given})


def test_loader__with_workers_of_its_own__loads_in_order() -> None:
    with loader(Numbers(10), num_workers=2) as made:
        assert len(made) == 2
        for _ in range(2):
            assert labels(made) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_loader__shuffled__goes_through_another_order_each_epoch() -> None:
    with loader(Numbers(16), shuffle=True) as made:
        epochs = [[label for batch in labels(made) for label in batch] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(16))
    assert epochs[0] != epochs[1]


def test_loader__async_without_drop_last__makes_whole_batches() -> None:
    with loader(Numbers(10), drop_last=False) as made:
        assert labels(made) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_loader__rebatched__loses_nothing_in_workers() -> None:
    dropped = poptorch.DataLoader(options(2), Stream(14), batch_size=2, num_workers=2)
    assert sum(len(batch) for batch in dropped) == 8
    dropped.terminate()
    with loader(Stream(14), DataLoaderMode.AsyncRebatched, num_workers=2, rebatched_worker_size=3) as made:
        values = torch.cat([batch.clone() for batch in made]).tolist()
    assert len(values) == len(set(values)) == 12


@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
def test_loader__rebatched_to_one_sample__needs_no_rebatching(mode: DataLoaderMode) -> None:
    made = poptorch.DataLoader(options(1), Numbers(3), drop_last=False, mode=mode, async_options=FORK)
    with made:
        assert labels(made) == [[0], [1], [2]]


def test_accessor__as_a_context__ends_its_process() -> None:
    with poptorch.AsynchronousDataAccessor(Numbers(3), **FORK) as accessor:
        assert len(list(accessor)) == 3
    with pytest.raises(poptorch.Error, match="An error occurred in the data fetcher"):
        next(iter(accessor))


def test_loader__that_trains__takes_the_steps_of_a_synchronous_one() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss((x * self.w).square().mean(), "sum")

    results = []
    for mode in (DataLoaderMode.Sync, DataLoaderMode.Async):
        model, extra = Sum(), {} if mode == DataLoaderMode.Sync else {"async_options": FORK}
        opts = options(2)
        training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=1e-4))
        with poptorch.DataLoader(opts, Numbers(12), batch_size=2, mode=mode, **extra) as made:
            for x, y in made:
                training(x, y)
        results.append(model.w.detach().clone())
    assert torch.equal(*results)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_accessor__sample_that_fails__is_told_with_its_error(capfd: pytest.CaptureFixture[str]) -> None:
    made = loader(Numbers(12, broken=6))
    batches = iter(made)
    next(batches)
    with pytest.raises(poptorch.Error, match="An error occurred in the data fetcher") as caught:
        next(batches)
    assert "ValueError: sample 6 cannot be read" in str(caught.value)
    made.terminate()
    assert "sample 6 cannot be read" in capfd.readouterr().err


@pytest.mark.parametrize("workers", [0, 1])
def test_accessor__sample_that_fails__shows_the_users_line_and_the_whole_traceback(workers: int) -> None:
    made = loader(Numbers(12, broken=1), num_workers=workers)
    with pytest.raises(poptorch.Error) as caught:
        next(iter(made))
    assert re.search(r"loading_kit\.py:\d+, in __getitem__", caught.value.at)
    assert "Traceback (most recent call last)" in caught.value.__notes__[0]
    assert "raise ValueError" in caught.value.__notes__[0]
    made.terminate()


def test_accessor__data_that_ends_like_a_closed_connection__is_told_as_an_error_of_the_data() -> None:
    made = accessor(Calls(2, end_of_file))
    with pytest.raises(poptorch.Error, match="EOFError: no more samples in the file"):
        list(made)
    made.terminate()


def test_accessor__process_that_vanishes__is_noticed() -> None:
    made = accessor(Vanishing())
    with pytest.raises(poptorch.Error, match="An error occurred in the data fetcher") as caught:
        list(made)
    assert caught.value.because == "its process ended with exit status 1"
    made.terminate()


def test_accessor__process_that_is_killed__takes_its_workers_along_and_is_told() -> None:
    made = loader(Calls(400, process), num_workers=1)
    batches = iter(made)
    (worker, started), *_ = next(batches).tolist()
    os.kill(started, signal.SIGKILL)
    with pytest.raises(poptorch.Error, match="An error occurred in the data fetcher") as caught:
        list(batches)
    assert caught.value.because == "its process was ended by SIGKILL: memory may be short"
    made.terminate()
    wait_for_end(worker, started)


def test_accessor__process_that_does_not_start__is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(poptorch.Error, match="AsynchronousDataAccessor worker thread failed to start"):
        accessor(Unstartable())
    assert "no length" in capfd.readouterr().err


def test_accessor__smaller_last_batch_of_a_loader__is_refused() -> None:
    made = accessor(torch.utils.data.DataLoader(Numbers(5), batch_size=2))
    with pytest.raises(poptorch.Error, match="only works if 'rebatched_size' is specified too"):
        list(made)
    made.terminate()


REFUSED: dict[str, tuple[Any, str]] = {
    "size": (lambda: accessor([], rebatched_size=1), "rebatched_size must be None or greater than 1"),
    "buffer": (lambda: accessor([], buffer_size=0), "buffer_size is a positive number"),
    "options": (
        lambda: poptorch.DataLoader(options(), Numbers(2), async_options={"buffer_size": 2}),
        "async_options have a meaning in the asynchronous modes only",
    ),
    "strategy": (lambda: accessor(Numbers(2), sharing_strategy="fork"), "takes a poptorch.SharingStrategy, got .fork."),
    "worker_size": (lambda: loader(Numbers(2), rebatched_worker_size=2), "in DataLoaderMode.AsyncRebatched only"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_accessor__arguments_without_sense__are_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(poptorch.Error, match=text):
        make()


def test_accessor__of_an_asynchronous_loader__is_refused() -> None:
    with loader(Numbers(8)) as made, pytest.raises(poptorch.Error, match="already asynchronous"):
        accessor(made)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_accessor__that_is_collected__ends_its_process() -> None:
    made = accessor(Numbers(100))
    next(iter(made))
    del made


def test_batch__after_its_accessor__can_still_be_read() -> None:
    made = accessor(Batches("tensor"))
    batch = next(iter(made))
    made.terminate()
    del made
    assert batch.tolist() == [[0.0] * 3] * 2


def wait_for_end(*processes: int) -> None:
    deadline = time.monotonic() + 10
    while any(map(running, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [number for number in processes if running(number)]


def running(number: int) -> bool:
    try:
        # A process that nobody has waited for is still listed.
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def left() -> tuple[set[str], set[str], int]:
    """Processes, shared memory and file descriptors of this process."""
    children = {word for path in Path("/proc/self/task").glob("*/children") for word in path.read_text().split()}
    return children, set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("starts", [4, pytest.param(sweeps.rounds(200, 40), marks=pytest.mark.slow)])
def test_loaders__started_again_and_again__leave_nothing(starts: int) -> None:
    gc.collect()
    before = left()
    for number in range(starts):
        with loader(Numbers(16), num_workers=number % 2) as made:
            next(iter(made))
    del made
    gc.collect()
    assert left() == before


def test_loader__with_a_sample_that_never_comes__ends_with_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accessor_module, "_PATIENCE_S", 0.1)
    made = loader(Calls(8, slow), num_workers=1)
    iter(made)
    first = made._accessor._worker._process.pid
    children = Path(f"/proc/{first}/task/{first}/children")
    while not (workers := children.read_text().split()):
        time.sleep(0.01)
    made.terminate()
    wait_for_end(first, *map(int, workers))


def test_program__that_is_killed__leaves_no_process() -> None:
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)

    def program() -> None:
        made = loader(Calls(400, process), num_workers=1)
        sender.send(next(iter(made)).flatten().tolist())
        time.sleep(100)

    killed = multiprocessing.get_context("fork").Process(target=program)
    killed.start()
    assert receiver.poll(30)
    worker, started, *_ = receiver.recv()
    killed.kill()
    killed.join()
    wait_for_end(worker, started)


def test_accessor__signals_that_the_program_handles__are_left_to_it() -> None:
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
    try:
        made = accessor(Numbers(400))
        batches = iter(made)
        next(batches)
        for number in (signal.SIGUSR1, signal.SIGINT):
            os.kill(made._worker._process.pid, number)
        assert [int(next(batches)[1]) for _ in range(20)] == list(range(1, 21))
        made.terminate()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not handled


def test_accessor__garbage_of_the_program__is_not_collected_by_the_other_process() -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            ring: list[Any] = []
            ring.append(ring)
        del ring
        assert drawn_by(collected)[0] < 50
    finally:
        gc.enable()


SCRIPT = """
import os, signal, sys, tempfile, time
folder = tempfile.TemporaryDirectory()  # ended when Python ends, and noted before any process is
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
sys.path.insert(0, {kit!r})
from loading_kit import Numbers
from abele import poptorch
class Own(Numbers):
    pass
made = poptorch.DataLoader(
    poptorch.Options(), Own(1000, seconds=0.001), batch_size=4, num_workers=1, mode=poptorch.DataLoaderMode.Async,
    async_options={{"sharing_strategy": poptorch.SharingStrategy.{strategy}}},
)
next(iter(made))
print(made._accessor._worker._process.pid, flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("strategy", "end", "how"),
    [
        pytest.param("ForkServer", "", 0, marks=pytest.mark.slow),
        ("SharedMemory", "time.sleep(60)", signal.SIGINT),
    ],
)
def test_script__in_no_file_however_it_ends__leaves_no_process(strategy: str, end: str, how: int) -> None:
    text = SCRIPT.format(kit=str(Path(__file__).parent), end=end, strategy=strategy)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        if how == signal.SIGINT:
            run.send_signal(signal.SIGINT)
        code = run.wait(timeout=60)
    assert code == (-signal.SIGINT if how == signal.SIGINT else how)
    wait_for_end(worker)


@pytest.mark.slow  # Both processes import PyTorch.
def test_script__spawning_without_a_main_guard__is_told_to_have_one(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT.format(kit=str(Path(__file__).parent), end="", strategy="SharedMemory"))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert "starts a process that loads data while another process imports it" in done.stderr
    assert "worker thread failed to start (Check above for details)" in done.stderr
    assert 'under `if __name__ == "__main__":`, or choose SharingStrategy.Fork' in done.stderr
