"""The host computers that there are, by name, and how a name, a file or a value becomes a :class:`HostComputer`."""

from __future__ import annotations

from pathlib import Path

from abele.errors import MachineError, nearest
from abele.machine.host_computer import HostComputer
from abele.machine.load import read_described
from abele.machine.source import cite, derived

_PRESETS = {
    host.name: host
    for host in (
        cite(
            HostComputer,
            name="epyc-7742",
            title="two AMD EPYC 7742, as Graphcore's MLPerf systems have",
            num_cores=derived(128, "2 x 64 cores; two EPYC 7742 a host (ML20)"),
            memory_bytes_per_second=derived(409.6e9, "2 sockets x 8 channels x 25.6 GB/s of DDR4-3200 (ML20)"),
        ),
    )
}
DEFAULT = "epyc-7742"
"""The host that rates are said for where none is named."""


def names() -> tuple[str, ...]:
    """Names of the presets."""
    return tuple(_PRESETS)


def get(name: str) -> HostComputer:
    """The preset called ``name``.

    Raises:
        MachineError: There is no such preset.
    """
    key = name.lower().replace("_", "-")
    if key not in _PRESETS:
        close = nearest(key, _PRESETS)
        raise MachineError(
            f"no host is called {name!r}",
            remedy=(f"did you mean {close!r}? " if close else "") + "the presets are " + ", ".join(_PRESETS),
        )
    return _PRESETS[key]


def load(path: str | Path) -> HostComputer:
    """Host described in a TOML or JSON file: the name of a preset as ``base``, and fields that differ from it.

    Raises:
        MachineError: The file cannot be read, has no ``base``, or describes something impossible.
    """
    return read_described(Path(path), get, what="host", example=DEFAULT)


def resolve(host: str | Path | HostComputer | None) -> HostComputer:
    """The host meant by a value, a preset's name, or the path of a description file; None means the default.

    Raises:
        MachineError: No such preset, a description that is none, or a value that means no host.
    """
    if host is None:
        return get(DEFAULT)
    if isinstance(host, HostComputer):
        return host
    if not isinstance(host, (str, Path)):
        raise MachineError(
            f"{host!r} is no host", remedy=f'a HostComputer, the name of a preset as in "{DEFAULT}", or a file'
        )
    if isinstance(host, Path) or Path(host).suffix in (".toml", ".json"):
        return load(host)
    return get(host)
