"""Parts of starting ranks that need no process: frames, lines, and what is said of ranks that are lost."""

from __future__ import annotations

import random

import pytest

from abele.errors import RankDisagreementError, RankLostError
from abele.launch.frames import OUT, FrameReader, RankFrame, frames_of
from abele.launch.launcher import LineSplitter
from abele.launch.watch import RankView, lost


def test_frames__of_many_ranks_cut_anywhere_at_blocks__come_out_whole() -> None:
    content = bytes(range(256)) * 50
    frames = [frame for rank in range(3) for frame in frames_of(rank, OUT, content)]
    assert all(len(frame) % 256 == 0 and len(frame) <= 4096 for frame in frames)
    random.Random(0).shuffle(frames)
    stream, reader, found = b"".join(frames), FrameReader(), dict.fromkeys(range(3), 0)
    for begin in range(0, len(stream), 777):
        for frame in reader.feed(stream[begin : begin + 777]):
            found[frame.rank] += len(frame.content)
    assert set(found.values()) == {len(content)}
    assert reader.others == []


def test_frames__words_between_them__are_kept_apart() -> None:
    reader = FrameReader()
    stream = b"=== BAD TERMINATION\n" + RankFrame(7, OUT, b"").encoded() + b"\x1eabele what is this\n\n"
    assert list(reader.feed(stream)) == [RankFrame(7, OUT, b"")]
    assert reader.others == [b"=== BAD TERMINATION", b"\x1eabele what is this"]


def test_lines__in_pieces_with_carriage_returns__come_whole_and_as_they_were_last() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one\n"]
    assert splitter.feed(b"o\r") == []
    assert splitter.feed(b"\n10%\r20%\r100%\n\n") == [b"two\n", b"100%\n", b"\n"]
    assert splitter.feed(b"the end") == []
    assert splitter.end() == [b"the end\n"]
    assert splitter.end() == []


def test_lines__bar_that_is_written_over__is_shown_once_a_second() -> None:
    splitter = LineSplitter()
    shown = [line for i in range(100) for line in splitter.feed(b"%d%%\r" % i)]
    assert len(shown) == 1
    assert splitter.end() == [b"99%\n"]


def test_lines__one_without_end__is_shown_in_pieces() -> None:
    splitter = LineSplitter()
    shown = b"".join(line.rstrip(b"\n") for _ in range(50) for line in splitter.feed(b"x" * 5000))
    assert len(shown) > 100_000


def beat(**told: object) -> dict[str, object]:
    return {"runs": 3, "exchanges": 9, "phase": "run", "step": "update/sum", "waits_for": [], "waited": 0.0, **told}


def test_lost__rank_that_compiles_while_others_wait__is_none() -> None:
    waiting = RankView(0, beat=beat(waits_for=[1], waited=500.0))
    assert lost([waiting, RankView(1, beat=beat(phase="compile", idle=0.2))], 10) is None


def test_lost__rank_that_comes_no_further__is_named_with_step_and_last_line() -> None:
    waiting = RankView(0, beat=beat(waits_for=[1], waited=9.0))
    late = RankView(1, beat=beat(phase="program", idle=9.0, place="train.py:31"), last_line="epoch 3\n")
    found = lost([waiting, late], 10)
    assert found is not None
    error = found.error()
    assert isinstance(error, RankLostError)
    assert "rank 1 has come no further for 9 s, and rank 0 waits for it" in str(error)
    assert "after step 'update/sum' · run 3 · the program's own code · train.py:31" in str(error)
    assert "the last line it printed: epoch 3" in str(error)
    assert lost([waiting, late], 0) is None


def test_lost__rank_that_waits_for_another_itself__is_not_the_one() -> None:
    first = RankView(0, beat=beat(waits_for=[1, 2], waited=9.0))
    second = RankView(1, beat=beat(waits_for=[0, 2], waited=9.0, idle=9.0))
    found = lost([first, second, RankView(2, beat=beat(idle=9.0))], 10)
    assert found is not None
    assert found.message.startswith("rank 2 has come no further")


def test_lost__all_wait_for_each_other__is_a_disagreement_that_names_both_steps() -> None:
    first = RankView(0, beat=beat(waits_for=[1], waited=9.0, step="a"))
    second = RankView(1, beat=beat(waits_for=[0], waited=9.0, step="b", idle=9.0))
    found = lost([first, second], 10)
    assert found is not None
    assert isinstance(found.error(), RankDisagreementError)
    assert "step 'a'" in str(found.error())
    assert "step 'b'" in str(found.error())


def test_lost__rank_that_ended_while_another_waits__is_told_how_often_each_met() -> None:
    first = RankView(0, beat=beat(waits_for=[1], waited=1.5))
    second = RankView(1, beat=beat(outcome="ended", exchanges=8))
    found = lost([first, second], 10)
    assert found is not None
    assert "rank 1 has ended, and rank 0 waits for it" in str(found.error())
    assert "met others 8 times, this is number 9 of rank 0" in str(found.error())


@pytest.mark.parametrize(
    ("code", "said"), [(-9, "was killed by SIGKILL"), (-11, "was killed by SIGSEGV"), (3, "ended with exit status 3")]
)
def test_lost__rank_that_died__is_told_how(code: int, said: str) -> None:
    found = lost([RankView(0, beat=beat()), RankView(1, beat=beat(), code=code)], 0)
    assert found is not None
    assert found.message == f"rank 1 {said}"


def test_lost__keeper_that_is_silent__is_a_lost_rank() -> None:
    found = lost([RankView(0, beat=beat()), RankView(1, beat=beat(), host="b", unheard=9.0)], 10)
    assert found is not None
    assert "rank 1 was not heard of for 9 s" in str(found.error())
    assert "host b" in str(found.error())
