"""A container that pays for fewer cores than it shows."""

from pathlib import Path

import pytest

from abele.llvm import host


def tree(root: Path, groups: str, **files: str) -> Path:
    """A file system with ``/proc/self/cgroup`` and files below ``/sys/fs/cgroup``, ``__`` for ``/``."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_AND_", ",")
        path = path.with_name(path.name.replace("max", "cpu.max") if path.name == "max" else f"cpu.{path.name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("content", "threads"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("1000 100000\n", 1),
        ("max 100000\n", None),
        ("", None),
        ("many 100000", None),
        ("200000", None),
        ("200000 0", None),
        ("\x00\xff", None),
    ],
)
def test_quota__of_version_2__is_rounded_up(tmp_path: Path, content: str, threads: int | None) -> None:
    assert host.quota_threads(tree(tmp_path, "0::/\n", max=content)) == threads


def test_quota__of_a_group_around__counts_where_it_is_less(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/a/b\n", a__max="300000 100000", a__b__max="700000 100000", max="max 100000")
    assert host.quota_threads(root) == 3


def test_quota__of_a_group_that_the_container_does_not_see__is_that_of_the_mount(tmp_path: Path) -> None:
    assert host.quota_threads(tree(tmp_path, "0::/docker/abc\n", max="50000 100000")) == 1


@pytest.mark.parametrize(("quota", "threads"), [("400000", 4), ("-1", None)])
def test_quota__of_version_1__is_read_where_its_controller_is(tmp_path: Path, quota: str, threads: int | None) -> None:
    root = tree(
        tmp_path,
        "3:memory:/d\n2:cpu,cpuacct:/d\n",
        cpu_AND_cpuacct__d__cfs_quota_us=quota,
        cpu_AND_cpuacct__d__cfs_period_us="100000",
        memory__d__cfs_quota_us="100000",
    )
    assert host.quota_threads(root) == threads


@pytest.mark.parametrize("groups", ["", "nonsense\n", "1:name=systemd:/x\n", "::\n"])
def test_quota__of_a_system_that_tells_none__is_none(tmp_path: Path, groups: str) -> None:
    assert host.quota_threads(tree(tmp_path, groups)) is None
    assert host.quota_threads(tmp_path / "nowhere") is None


@pytest.mark.parametrize(("quota", "threads"), [(None, 8), (3, 3), (64, 8)])
def test_threads__under_a_quota__are_the_fewer(
    monkeypatch: pytest.MonkeyPatch, quota: int | None, threads: int
) -> None:
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(host, "quota_threads", lambda: quota)
    assert host.num_threads() == threads
