"""Jobs of real processes that do not know of MPI, or only meet: what they print, and that they end together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ended, needs_mpi, needs_mpiexec, start

Run = Callable[..., Ended]
Write = Callable[[str], Path]
MEET = "from abele.runtime.ranks.mpi import mpi_ranks\nranks = mpi_ranks()\nranks.gather(b'', 'first step')\n"


def left_over(mark: str) -> list[str]:
    """Processes that have a mark in their arguments, waiting a moment for them to go."""
    for _ in range(50):
        listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True).stdout
        found = [line for line in listed.splitlines() if mark in line and "defunct" not in line]
        if not found:
            return []
        time.sleep(0.1)
    return found


@needs_mpiexec
def test_run__ranks_that_print_at_once__keeps_lines_whole_and_tagged(run: Run, program: Write) -> None:
    path = program(
        "for i in range(2000): print(f'{RANK}' * 300)\n"
        "sys.stdout.flush()\n"
        "sys.stdout.buffer.write(b'\\xff\\xfe\\x00 \\xc3\\xbc no end'); sys.stdout.flush()\n"
        "print('told', sys.argv[1:], os.environ['ABELE_RANK_REPLICAS'], file=sys.stderr)\n"
        "print(repr(sys.stdin.read()), file=sys.stderr)\n"
    )
    ended = run("-n", 2, "--replicas", 6, path, "--ranks", "7", typed=b"typed\nwithout end")
    assert ended.status == 0, ended.err
    for rank in range(2):
        assert ended.lines(rank)[:-1] == [str(rank) * 300] * 2000
        assert ended.lines(rank)[-1].endswith(" ü no end")
        assert f"[rank {rank}] told ['--ranks', '7'] 3" in ended.err
    assert "[rank 0] 'typed\\nwithout end'" in ended.err
    assert "[rank 1] ''" in ended.err


def test_run__one_rank__needs_no_mpi_and_may_be_untagged(run: Run, program: Write, tmp_path: Path) -> None:
    ended = run("--no-tag-output", program("print('PMI_RANK' in os.environ, __name__)\nsys.exit(5)\n"))
    assert (ended.status, ended.out) == (5, "False __main__\n")
    module = tmp_path / "there"
    module.mkdir()
    (module / "__main__.py").write_text("print('a folder')", encoding="utf-8")
    assert run(module).lines(0) == ["a folder"]


@needs_mpiexec
def test_run__rank_that_is_killed__ends_all_with_what_they_started(run: Run, program: Write, tmp_path: Path) -> None:
    path = program(
        "import subprocess, signal\n"
        "print('at work')\n"
        "if RANK:\n"
        "    time.sleep(0.5); print(time.time(), flush=True); sys.stdout.write('half a line'); sys.stdout.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"subprocess.run([sys.executable, '-c', 'import time; time.sleep(100)', {str(tmp_path)!r}])\n"
    )
    ended = run("-n", 2, path)
    assert ended.status == 128 + 9
    assert ended.at - float(ended.lines(1)[1]) < 10
    assert "RankLostError: rank 1 was killed by SIGKILL" in ended.err
    assert "the last line it printed: half a line" in ended.err
    assert left_over(str(tmp_path)) == []


@needs_mpiexec
def test_run__exception_in_one__is_shown_as_python_does_and_ends_all(run: Run, program: Write) -> None:
    ended = run("-n", 2, program("if RANK: raise ValueError('the data is bad')\ntime.sleep(100)\n"))
    assert ended.status == 1
    assert "RankLostError: rank 1 ended with exit status 1: ValueError: the data is bad" in ended.err
    assert "launch/program.py" not in ended.err
    assert "[rank 1] ValueError: the data is bad" in ended.err


@needs_mpi
def test_run__rank_that_sleeps_where_another_waits__is_named_in_time(run: Run, program: Write) -> None:
    ended = run(
        "-n",
        2,
        "--timeout",
        3,
        program(MEET + "if RANK: print(time.time()); time.sleep(100)\nranks.gather(b'', 'second')"),
    )
    assert ended.status == 1
    assert ended.at - float(ended.lines(1)[0]) < 6
    assert "RankLostError: rank 1 has come no further for" in ended.err
    assert "after step 'first step' · the program's own code" in ended.err
    assert "rank 0: step 'second'" in ended.err


@needs_mpi
def test_run__rank_that_leaves_early_with_0__is_named_with_its_meetings(run: Run, program: Write) -> None:
    ended = run("-n", 2, program(MEET + "if not RANK: ranks.gather(b'', 'second')"))
    assert ended.status == 1
    assert "RankDisagreementError: rank 1 has ended, and rank 0 waits for it" in ended.err
    assert "step 'second'" in ended.err


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "while True: max(1, 2)",
        "import threading; threading.Lock().acquire(); threading.Event().wait()",
    ],
)
def test_run__rank_in_an_endless_loop__is_named(run: Run, program: Write, loop: str) -> None:
    ended = run("-n", 2, "--timeout", 3, program(MEET + f"if RANK:\n    {loop}\nranks.gather(b'', 'second')"))
    assert "RankLostError: rank 1 has come no further for" in ended.err


@needs_mpi
@pytest.mark.slow
def test_run__rank_that_works_for_longer_than_the_others_wait__is_waited_for(run: Run, program: Write) -> None:
    work = (
        "if RANK:\n"
        "    import json, re, textwrap\n"
        "    end = time.time() + 8\n"
        "    while time.time() < end:\n"
        "        json.loads(json.dumps([re.sub('a', 'b', textwrap.fill('a b ' * 50)) for _ in range(9)]))\n"
        "ranks.gather(b'', 'second')\nprint('done')\n"
    )
    ended = run("-n", 2, "--timeout", 3, program(MEET + work))
    assert ended.status == 0, ended.err
    assert ended.lines(0) == ended.lines(1) == ["done"]


@needs_mpi
@pytest.mark.slow
def test_run__rank_that_comes_late_to_the_job__is_waited_for_by_name(run: Run, program: Write) -> None:
    ended = run("-n", 2, "--timeout", 3, program("if RANK: time.sleep(100)\n" + MEET))
    assert "rank 0: step 'join the job'" in ended.err


@needs_mpiexec
@pytest.mark.slow
@pytest.mark.parametrize("ended_by", ["launcher", "mpiexec", "keeper", "interrupt", "terminate"])
def test_run__any_process_that_ends__takes_all_with_it(program: Write, tmp_path: Path, ended_by: str) -> None:
    path = program("print('up', flush=True)\ntime.sleep(100)\n")
    process = start("-n", 2, path)
    assert process.stdout is not None
    for _ in range(2):
        process.stdout.readline()
    marks = {"mpiexec": "bin/mpiexec", "keeper": "-m abele.launch.rank_supervisor"}
    if ended_by in marks:
        listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True).stdout
        rows = [line.split(maxsplit=1) for line in listed.splitlines() if str(path) in line and marks[ended_by] in line]
        number = next(int(row[0]) for row in rows if (ended_by == "mpiexec") == ("mpiexec" in row[1]))
        os.kill(number, signal.SIGKILL)
    else:
        numbers = {"launcher": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
        process.send_signal(numbers[ended_by])
    _, err = process.communicate(timeout=30)
    assert process.returncode not in (0, None)
    assert left_over(str(path)) == []
    if ended_by in marks:
        assert b"mpiexec ended with exit status" in err
        assert b"the last line it printed: up" in err
