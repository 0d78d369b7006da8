"""Loading ahead in another process: what is handed on, in which order, and what is left when something ends."""

from __future__ import annotations

import glob
import multiprocessing
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loading_kit import Batches, Numbers, Stream, Unstartable, Vanishing
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.poptorch import AsynchronousDataAccessor, DataLoaderMode, SharingStrategy

FORK = {"sharing_strategy": SharingStrategy.Fork}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 10
    while any(p.name == "poptorch-data" for p in multiprocessing.active_children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [p for p in multiprocessing.active_children() if p.name == "poptorch-data"]
    assert not glob.glob("/dev/shm/abele-batches-*")


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


def test_accessor__by_default__loads_in_a_process_of_a_server() -> None:
    made = AsynchronousDataAccessor(TensorDataset(torch.arange(4.0)))
    assert [float(sample) for (sample,) in made] == [0, 1, 2, 3]
    made.terminate()


def test_accessor__what_cannot_be_pickled__is_loaded_in_a_fork() -> None:
    class Local(Numbers):
        pass

    made = AsynchronousDataAccessor(Local(2))
    assert len(list(made)) == 2
    made.terminate()


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


def test_accessor__process_that_vanishes__is_noticed() -> None:
    made = accessor(Vanishing())
    with pytest.raises(poptorch.Error, match="An error occurred in the data fetcher"):
        list(made)
    made.terminate()


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


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
sys.path.insert(0, {kit!r})
from loading_kit import Numbers
from abele import poptorch
made = poptorch.DataLoader(
    poptorch.Options(), Numbers(1000, seconds=0.001), batch_size=4, num_workers=1, mode=poptorch.DataLoaderMode.Async,
    async_options={{"sharing_strategy": poptorch.SharingStrategy.Fork}},
)
next(iter(made))
print(made._accessor._worker._process.pid, flush=True)
{end}
"""


@pytest.mark.parametrize(("end", "how"), [("", 0), ("time.sleep(60)", signal.SIGINT)])
def test_script__however_it_ends__leaves_no_process(end: str, how: int) -> None:
    text = SCRIPT.format(kit=str(Path(__file__).parent), end=end)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        if how == signal.SIGINT:
            run.send_signal(signal.SIGINT)
        code = run.wait(timeout=60)
    assert code == (-signal.SIGINT if how == signal.SIGINT else how)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{worker}").exists()
