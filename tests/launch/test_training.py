"""PyTorch programs on real ranks: the bits of one process, what goes wrong in one rank, and checkpoints."""

from __future__ import annotations

import ast
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ended, needs_mpi, start

Run = Callable[..., Ended]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "poptorch" / "ranks.py"
TRAIN = Path(__file__).parent / "programs" / "train.py"
SAVES = Path(__file__).parent / "programs" / "saves.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]


def told(ended: Ended, rank: int) -> dict[str, str]:
    """Results that a rank printed, by name."""
    assert ended.status == 0, ended.err
    return dict(line.split(" ", 1) for line in ended.lines(rank))


@needs_mpi
def test_training__four_replicas_in_1_and_4_ranks__has_the_same_bits(run: Run) -> None:
    """Two ranks are those of checkpoints, below."""
    alone, quarters = (run("-n", ranks, "--replicas", 4, TRAIN) for ranks in (1, 4))
    expected = told(alone, 0)
    for rank in range(4):
        found = told(quarters, rank)
        assert (found["weights"], found["state"]) == (expected["weights"], expected["state"])
    assert told(quarters, 0)["running"] == expected["running"]
    # Running statistics are each replica's own.
    assert len({told(quarters, rank)["running"] for rank in range(4)}) == 4


@needs_mpi
def test_training__with_a_loader_that_shuffles__has_the_bits_of_one_process_that_is_given_the_same(
    run: Run, tmp_path: Path
) -> None:
    ended = run("-n", 2, "--replicas", 4, TRAIN, "--loader")
    seen = [ast.literal_eval(told(ended, rank)["seen"]) for rank in range(2)]
    flat = [[index for batch in part for index in batch] for part in seen]
    assert not set(flat[0]) & set(flat[1])
    (tmp_path / "seen").write_text(repr(seen), encoding="utf-8")
    alone = run("-n", 1, "--replicas", 4, TRAIN, "--seen", tmp_path / "seen")
    assert told(alone, 0)["weights"] == told(ended, 0)["weights"] == told(ended, 1)["weights"]


@needs_mpi
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kill", "RankLostError: rank 1 was killed by SIGKILL"),
        ("exception", "RankLostError: rank 1 ended with exit status 1: ValueError: the data is bad"),
        ("exit", "RankDisagreementError: rank 1 has ended, and rank 0 waits for it"),
        pytest.param("calls", "rank 1 has ended, and rank 0 waits for it", marks=pytest.mark.rest),
        ("hang", "RankLostError: rank 1 has come no further for 4 s, and rank 0 waits for it"),
        ("options", "disagrees with rank 0 about the option outputs"),
        pytest.param("weights", "disagrees with rank 0 about the parameter", marks=pytest.mark.rest),
        pytest.param("rate", "disagrees with rank 0 about lr of optimiser 0", marks=pytest.mark.rest),
    ],
)
def test_training__that_goes_wrong_in_one_rank__ends_in_all_and_says_where(run: Run, fault: str, said: str) -> None:
    ended = run("-n", 2, "--replicas", 4, "--timeout", 6, TRAIN, "--fault", fault)
    assert ended.status != 0
    assert said in ended.err
    if fault == "hang":
        assert ended.at - float(ended.lines(1)[-1].split()[-1]) < 10
    if fault in ("kill", "hang"):
        assert "· run 2 ·" in ended.err


@needs_mpi
@pytest.mark.rest
def test_checkpoint__after_half_of_the_updates__goes_on_to_the_bits_of_all(run: Run, tmp_path: Path) -> None:
    straight = told(run("-n", 1, "--replicas", 4, TRAIN, "--updates", 6), 0)
    for first, seconds in ((2, (2, 1)), (1, (2,))):
        half = tmp_path / f"half{first}"
        told(run("-n", first, "--replicas", 4, TRAIN, "--updates", 3, "--save", half), 0)
        for second in seconds:
            resumed = run("-n", second, "--replicas", 4, TRAIN, "--updates", 6, "--load", half)
            for rank in range(second):
                found = told(resumed, rank)
                assert (found["weights"], found["state"]) == (straight["weights"], straight["state"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half1", "half2"]


@needs_mpi
def test_checkpoint__whenever_its_writer_is_killed__is_one_that_can_be_read(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "last"
    process = start("-n", 2, "--replicas", 2, SAVES, path)
    assert process.stdout is not None
    process.stdout.readline()
    for moment in range(12):
        time.sleep(0.05 + 0.03 * moment)
        if moment == 8:
            process.kill()
        state = torch.load(path, weights_only=True)
        assert state["more"]["updates"] >= 1
    process.communicate(timeout=30)
    state = torch.load(path, weights_only=True)
    assert state["format"] == "abele-checkpoint"


@needs_mpi
def test_example__stopped_and_started_with_other_ranks__ends_as_without(run: Run, tmp_path: Path) -> None:
    def trained(ranks: int, updates: int, name: str) -> dict[str, object]:
        import torch

        path = tmp_path / name
        ended = run("-n", ranks, "--replicas", 2, EXAMPLE, "--updates", updates, "--every", 3, "--checkpoint", path)
        assert ended.status == 0, ended.err
        assert "loss after" in ended.lines(ranks - 1)[0]
        found: dict[str, object] = torch.load(path, weights_only=True)
        return found

    trained(2, 4, "stopped")
    resumed, straight = trained(1, 8, "stopped"), trained(2, 8, "straight")
    assert repr(resumed["model"]) == repr(straight["model"])
    assert resumed["more"] == straight["more"] == {"updates": 8}


def test_checkpoint__of_models_and_files_that_cannot_be__are_refused(tmp_path: Path) -> None:
    import torch

    from abele import poptorch
    from abele.errors import FileFormatError

    plain = torch.nn.Linear(2, 2)
    with pytest.raises(poptorch.Error, match="a model that trains"):
        poptorch.save_checkpoint(tmp_path / "c", poptorch.inferenceModel(torch.nn.Linear(2, 2)))
    training = poptorch.trainingModel(plain, optimizer=torch.optim.SGD(plain.parameters(), lr=0.1))
    with pytest.raises(poptorch.Error, match=r"poptorch\.optim\.SGD"):
        poptorch.save_checkpoint(tmp_path / "c", training)
    ours = torch.nn.Linear(2, 2)
    training = poptorch.trainingModel(ours, optimizer=poptorch.optim.SGD(ours.parameters(), lr=0.1))
    with pytest.raises(FileFormatError, match="cannot be read as a checkpoint"):
        poptorch.load_checkpoint(tmp_path / "nowhere", training)
    (tmp_path / "cut").write_bytes(b"PK\x03\x04")
    with pytest.raises(FileFormatError, match="cannot be read as a checkpoint"):
        poptorch.load_checkpoint(tmp_path / "cut", training)
    torch.save({"a": 1}, tmp_path / "other")
    with pytest.raises(FileFormatError, match="is no checkpoint"):
        poptorch.load_checkpoint(tmp_path / "other", training)
