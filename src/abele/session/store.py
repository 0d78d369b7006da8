"""Compiled networks as files, and a folder of them by content: plain data, nothing of which is executed when read.

A file holds the executable, the network as text, and the ends towards the host. What is compiled in besides (schedule,
settings, optimisers) is the caller's, who knows it when he asks for a file by content; the parts of it that compiling
may have chosen itself are in the file.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import msgspec

import abele
from abele.compiler import Executable
from abele.errors import AbeleError
from abele.network import Group, Network, NetworkFunction, Optimiser, Schedule, parse
from abele.network.ir.printer import function_text
from abele.network.split import Split
from abele.numerics import as_element_type
from abele.own_code import own_code
from abele.poplibs.gcl import CommGroup
from abele.poplibs.gcl.groups import Kind
from abele.poplibs.poputil.order import StorageOrder
from abele.report import archive as container
from abele.session.compiled import Compiled
from abele.session.host_interface import End, Ends, Flat
from abele.session.input_checks import InputChecks
from abele.session.settings import Settings

_LOG = logging.getLogger("abele")

_EXECUTABLE, _NETWORK = "executable.zip", "network.net"


class _StoredFlat(msgspec.Struct):
    fine: list[int]
    of_dim: list[int]
    order: list[int]
    replicas: int
    initial: float
    begin: int | None = None


class _StoredEnd(msgspec.Struct):
    name: str
    handle: str
    shape: list[int]
    dtype: str
    group: tuple[Kind, int, int] | None = None
    flat: _StoredFlat | None = None
    split: tuple[int, int, int] | None = None


class _Document(msgspec.Struct):
    format: str
    version: int
    inputs: list[_StoredEnd]
    outputs: list[_StoredEnd]
    changed: list[tuple[int, _StoredEnd]]
    weights: dict[str, _StoredEnd]
    state: dict[str, _StoredEnd]
    numbers: list[dict[str, _StoredEnd]]
    seed: _StoredEnd | None
    updated: list[str]
    memory_proportion: float | None
    seconds: float
    anchors: list[_StoredEnd] = []


KIND = container.Kind(
    "session",
    version=3,
    max_bytes=1 << 32,
    free_bytes=1 << 30,
    ratio=100,
    again="compile the network again",
    schema=_Document,
)
"""Version 2: tensors of which groups of replicas have values of their own. Version 3: tensors that replicas share, or
that are in streaming memory; parts of one array."""


# --- files -----------------------------------------------------------------------------------------------------------


def save_compiled(compiled: Compiled, net: Network, path: str | Path) -> None:
    """Write a compiled network to a file, whole or not at all.

    Args:
        compiled: The network.
        net: Network that it was compiled from.
        path: The file.

    Raises:
        FileFormatError: The file cannot be written, or a codelet is C++, of which no data is known.
    """
    ends = compiled.ends
    document = {
        "inputs": [_stored(end) for end in ends.inputs],
        "outputs": [_stored(end) for end in ends.outputs],
        "changed": [(position, _stored(end)) for position, end in ends.changed],
        "weights": {name: _stored(end) for name, end in ends.weights.items()},
        "state": {name: _stored(end) for name, end in ends.state.items()},
        "numbers": [{name: _stored(end) for name, end in numbers.items()} for numbers in ends.numbers],
        "seed": None if ends.seed is None else _stored(ends.seed),
        "updated": sorted(compiled.updated),
        "memory_proportion": compiled.settings.memory_proportion,
        "seconds": compiled.seconds,
        "anchors": [_stored(end) for end in ends.anchors],
    }
    with tempfile.TemporaryDirectory() as folder:
        executable = Path(folder) / "executable"
        compiled.executable.save(executable)
        content = executable.read_bytes()

    def fill(archive: container.ArchiveWriter) -> None:
        container.write_member(archive, _EXECUTABLE, content)
        container.write_member(archive, _NETWORK, str(net).encode())
        container.write_document(archive, KIND, document)

    container.write(Path(path), KIND, fill)


def _stored(end: End) -> dict[str, Any]:
    group = None if end.group is None else astuple(end.group)
    return {
        "name": end.name,
        "handle": end.handle,
        "shape": list(end.shape),
        "dtype": end.dtype.name,
        **({} if group is None else {"group": group}),
        **({} if end.flat is None else {"flat": _stored_flat(end.flat)}),
        **({} if end.split is None else {"split": astuple(end.split)}),
    }


def _stored_flat(flat: Flat) -> dict[str, Any]:
    order = flat.order
    parts = {"fine": list(order.fine), "of_dim": list(order.of_dim), "order": list(order.order)}
    return {**parts, "replicas": flat.replicas, "initial": flat.initial, "begin": flat.begin}


def load_compiled(
    path: str | Path,
    schedule: Schedule,
    settings: Settings,
    optimisers: Sequence[Optimiser] | None,
    *,
    trusted: bool = False,
) -> tuple[Compiled, Network]:
    """A compiled network from a file, and the network that it was compiled from.

    Args:
        path: The file.
        schedule: The schedule that it was compiled for.
        settings: Settings that it was compiled with.
        optimisers: The update rules that it was compiled for; None for inference.
        trusted: Run its codelets without checking every access; only for files of your own.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no compiled network.
    """

    def build(archive: container.Archive, document: _Document) -> tuple[Compiled, Network]:
        net = parse(archive.content(_NETWORK).decode())
        with tempfile.TemporaryDirectory() as folder:
            executable_path = Path(folder) / "executable"
            executable_path.write_bytes(archive.content(_EXECUTABLE))
            executable = Executable.load(executable_path, trusted=trusted)
        ends = _ends(document)
        _check_ends(executable, net, ends)
        compiled = Compiled(
            executable=executable,
            ends=ends,
            schedule=schedule,
            settings=replace(settings, memory_proportion=document.memory_proportion),
            optimisers=None if optimisers is None else tuple(optimisers),
            updated=frozenset(document.updated),
            checks=InputChecks(net),
            seconds=document.seconds,
        )
        return compiled, net

    return container.read(Path(path), KIND, build)


def _ends(document: _Document) -> Ends:
    return Ends(
        inputs=tuple(map(_end, document.inputs)),
        outputs=tuple(map(_end, document.outputs)),
        changed=tuple((position, _end(end)) for position, end in document.changed),
        weights={name: _end(end) for name, end in document.weights.items()},
        state={name: _end(end) for name, end in document.state.items()},
        numbers=tuple({name: _end(end) for name, end in numbers.items()} for numbers in document.numbers),
        seed=None if document.seed is None else _end(document.seed),
        anchors=tuple(map(_end, document.anchors)),
    )


def _end(stored: _StoredEnd) -> End:
    group = None if stored.group is None else CommGroup(*stored.group)
    shape, flat = tuple(stored.shape), stored.flat
    lies = None
    if flat is not None:
        order = StorageOrder(shape, tuple(flat.fine), tuple(flat.of_dim), tuple(flat.order))
        if sorted(order.order) != [*range(len(order.fine))] or math.prod(order.fine) != math.prod(shape):
            raise ValueError(f"{stored.name!r} lies in no order of its {math.prod(shape)} elements")
        lies = Flat(order, flat.replicas, flat.initial, flat.begin)
    split = None if stored.split is None else Split(*stored.split)
    dtype = as_element_type(stored.dtype)
    return End(stored.name, stored.handle, shape, dtype, group=group, flat=lies, split=split)


def _check_ends(executable: Executable, net: Network, ends: Ends) -> None:
    """Raise unless the executable has the ends, each as they say.

    Raises:
        ValueError: It has not.
    """
    graph = executable.graph
    streams = {name: (stream.shape, stream.dtype) for name, stream in graph.streams.items()}
    handles = {name: (handle.tensor.shape, handle.tensor.dtype) for name, handle in graph.host_handles.items()}
    for end in (*ends.inputs, *ends.outputs, *(end for _, end in ends.changed), *ends.anchors):
        if streams.get(end.handle) != (end.shape, end.dtype):
            raise ValueError(f"the executable has no stream {end.handle!r} of shape {list(end.shape)}")
    tensors = [*ends.weights.values(), *ends.state.values(), *(e for table in ends.numbers for e in table.values())]
    for end in (*tensors, *([] if ends.seed is None else [ends.seed])):
        if end.is_remote:
            _check_remote(executable, end)
        elif handles.get(end.handle) != ((end.shape if end.flat is None else (end.flat.width,)), end.dtype):
            raise ValueError(f"the executable has no tensor {end.handle!r} of shape {list(end.shape)}")
    if ends.inputs and len(ends.inputs) != len(net.inputs):
        raise ValueError(f"it has {len(ends.inputs)} inputs, its network {len(net.inputs)}")
    if any(not 0 <= position < len(net.inputs) for position, _ in ends.changed):
        raise ValueError("it changes an input that there is not")


def _check_remote(executable: Executable, end: End) -> None:
    """Raise unless the executable has a remote buffer with room for what lies there.

    Raises:
        ValueError: It has not.
    """
    buffer, flat = executable.graph.remote_buffers.get(end.handle), end.flat
    assert flat is not None
    assert flat.begin is not None
    has_room = buffer is not None and 0 <= flat.begin <= buffer.num_elements * buffer.repeats - flat.width
    if buffer is None or buffer.dtype != end.dtype or not has_room:
        raise ValueError(f"the executable has no remote buffer {end.handle!r} with {end.name!r}")


# --- a folder of files, by content -----------------------------------------------------------------------------------


class CompiledFolder:
    """Compiled networks in a folder, by the content of their sources. Processes may share it.

    Args:
        folder: The folder; it is made when something is stored.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def path(self, net: Network, schedule: Schedule, groups: Sequence[Group] | None, settings: Settings) -> Path:
        """The file of a network; another one for anything that is compiled in."""
        return self._folder / f"{content_key(net, schedule, groups, settings)}.abele-session"

    def find(
        self, net: Network, schedule: Schedule, groups: Sequence[Group] | None, settings: Settings
    ) -> Compiled | None:
        """The compiled network, if the folder has it and it can be read."""
        path = self.path(net, schedule, groups, settings)
        if not path.exists():
            return None
        optimisers = None if groups is None else [group.optimiser for group in groups]
        try:
            return load_compiled(path, schedule, settings, optimisers, trusted=_is_own(path))[0]
        except AbeleError as error:
            _LOG.warning("%s is passed over: %s", path, error.message)
            return None

    def keep(
        self,
        compiled: Compiled,
        net: Network,
        schedule: Schedule,
        groups: Sequence[Group] | None,
        settings: Settings,
    ) -> None:
        """Store a compiled network; a folder that cannot be written is told of in the log alone."""
        path = self.path(net, schedule, groups, settings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_compiled(compiled, net, path)
        except (AbeleError, OSError) as error:
            _LOG.warning("%s cannot be stored: %s", path, error)


def _is_own(path: Path) -> bool:
    """True for a file that this user alone can have written."""
    if os.name != "posix":
        return False
    stats = [path.stat(), path.parent.stat()]
    return all(stat.st_uid == os.getuid() and not stat.st_mode & 0o022 for stat in stats)


_LOOKS: dict[str, Any] = {"exponents": (), "exponents_every": 1, "report_folder": ""}
"""Settings of the host alone, which no program depends on."""


def content_key(net: Network, schedule: Schedule, groups: Sequence[Group] | None, settings: Settings) -> str:
    """Key of everything that compiling depends on."""
    parts = [
        abele.__version__,
        own_code(),
        repr(settings.target()),
        repr(replace(settings, system=None, threads=0, progress=False, dump_passes=None, cache=None, **_LOOKS)),
        repr(schedule),
        repr([(_said(g.optimiser), [p.name for p in g.parameters]) for g in groups]) if groups is not None else "",
        str(net),
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:40]


def _said(optimiser: Optimiser) -> str:
    """An optimiser in words that are the same in every process: sets have no order of their own."""
    values = {field.name: getattr(optimiser, field.name) for field in fields(optimiser)}
    ordered = {name: _ordered(value) for name, value in values.items()}
    return f"{type(optimiser).__name__} {ordered}"


def _ordered(value: Any) -> Any:
    """A value of an optimiser's field, as something whose text is the same in every process."""
    if isinstance(value, NetworkFunction):
        return function_text(value)
    return sorted(value) if isinstance(value, frozenset) else value
