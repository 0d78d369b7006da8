"""Sessions: a compiled network with its data, to be run on NumPy arrays."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.compiler import Executable
from abele.errors import InvalidOptionError, RankDisagreementError, SessionError
from abele.network import Group, Network, Optimiser, Schedule
from abele.network.ops.host_call import body_of_host_function
from abele.report import CallTimes, HostProfile, Report, take_waited
from abele.runtime import Engine
from abele.runtime.ranks.group import Ranks
from abele.runtime.ranks.mpi import mpi_ranks
from abele.session import feeds
from abele.session.array_sync import ForkLock, Mirror
from abele.session.arrays import SharedArray, SharedArrays
from abele.session.compiled import Compiled
from abele.session.compiling import compile_network
from abele.session.device_arrays import DeviceArrays
from abele.session.exponents import ExponentRecorder
from abele.session.settings import Settings
from abele.words import counted

# Sessions of several processes: which they are, and that all of them begin alike.


def joined_ranks(schedule: Schedule, ranks: Ranks | None) -> Ranks | None:
    """The processes that share the replicas of a schedule; None where it has one.

    Raises:
        RankDisagreementError: Another number of processes than the schedule says.
        MissingPackageError: There is no MPI.
    """
    if schedule.ranks == 1:
        return None
    found = ranks if ranks is not None else mpi_ranks()
    if found.size != schedule.ranks:
        raise RankDisagreementError(
            f"the schedule has {schedule.ranks} ranks, the job {found.size}",
            remedy=f"abele run --ranks {schedule.ranks} program.py",
        )
    return found


def check_alike(
    ranks: Ranks,
    compiled: Compiled,
    weights: SharedArrays,
    state: SharedArrays,
    optimisers: Sequence[Optimiser] | None,
) -> None:
    """Raise, in every process alike, unless all begin with the same program, numbers and weights. Collective.

    Raises:
        RankDisagreementError: One differs from the first; it and what differs are named.
    """
    mine = dict(_described(compiled, weights, state, optimisers))
    every = [json.loads(words) for words in ranks.gather(json.dumps(mine).encode(), "compare what ranks begin with")]
    for rank, theirs in enumerate(every):
        for what in dict.fromkeys((*every[0], *theirs)):
            first, other = every[0].get(what), theirs.get(what)
            if first != other:
                shown = f"rank 0 has {first or 'none'}, rank {rank} {other or 'none'}"
                raise RankDisagreementError(
                    f"rank {rank} disagrees with rank 0 about {what}",
                    because=shown,
                    remedy="give all ranks the same options, and the same seed or checkpoint",
                )


def _described(
    compiled: Compiled, weights: SharedArrays, state: SharedArrays, optimisers: Sequence[Optimiser] | None
) -> Iterator[tuple[str, str]]:
    """Properties that must be the same on all ranks: the name of each, and its value or digest."""
    schedule = compiled.schedule
    for field in fields(schedule):
        yield f"the option {field.name}", repr(getattr(schedule, field.name))
    settings = compiled.settings
    for name in ("mode", "partials", "memory_proportion", "exceptions", "stochastic_rounding", "synthetic_data"):
        yield f"the setting {name}", repr(getattr(settings, name))
    for end in compiled.ends.inputs:
        yield f"the input {end.name!r}", f"{end.dtype}{list(end.shape)}"
    for number, optimiser in enumerate(optimisers or ()):
        for field in fields(optimiser):
            value = getattr(optimiser, field.name)
            shown = repr(sorted(value)) if isinstance(value, frozenset) else repr(value)
            yield f"{field.name} of optimiser {number}", shown
    for kind, arrays, ends in (
        ("the parameter", weights, compiled.ends.weights),
        ("the optimiser state", state, compiled.ends.state),
    ):
        for name in sorted(ends):
            if name in arrays:
                values = np.ascontiguousarray(arrays[name])
                digest = hashlib.sha256(values.tobytes()).hexdigest()[:12]
                yield f"{kind} {name!r}", f"{values.dtype}{list(values.shape)} with digest {digest}"
    steps = compiled.executable.report.steps
    digest = hashlib.sha256(np.asarray(steps["cycles"]).tobytes()).hexdigest()[:12]
    yield "the program", f"{len(steps)} steps with digest {digest}"


# The host's side of optimisers: which numbers of a compiled one may be replaced.
#
# The border to :mod:`abele.network`: rules, their numbers and their lowering are there; a session holds their state by
# name, writes the numbers that live on the device, and refuses the others.


def check_optimisers(compiled: Sequence[Optimiser], given: Sequence[Optimiser]) -> None:
    """Raise unless optimisers differ from the compiled ones only in variable numbers.

    Raises:
        InvalidOptionError: Another number of them, another rule, or a constant that changed.
    """
    if len(given) != len(compiled):
        raise InvalidOptionError(
            f"{len(given)} optimisers for a network that was compiled with {len(compiled)} groups of parameters",
            remedy="one for each group, in order",
        )
    for before, after in zip(compiled, given, strict=True):
        before.check_replacement(after)


Inputs = Sequence[Any] | Mapping[str, Any]


class Session:
    """A compiled network on a device: it runs host batches, and its weights are NumPy arrays by name.

    Weights live on the device from the first run on. Reading them from ``weights`` brings the newest values to the
    host; writing them there, or training them in another session over the same arrays, reaches the next run. The same
    holds for the state of optimisers.

    Args:
        compiled: The network.
        weights: Parameters and buffers by name; a :class:`SharedArrays` is shared with its other sessions.
        state: State of optimisers by name; what is missing starts as the optimiser says, and is added.
        seed: Initial state of random ops.
        follow_host: True if weights that are written on the host reach the next run by themselves; otherwise with
            :meth:`upload`, and what runs have learnt is newer than such writes.
        ranks: The processes of a schedule of several; those that MPI knows when left out.

    Attributes:
        compiled: The network.
        weights: Parameters and buffers by name.
        state: State of optimisers by name, such as ``fc.weight/momentum``.
    """

    def __init__(
        self,
        compiled: Compiled,
        *,
        weights: SharedArrays | Mapping[str, npt.ArrayLike | SharedArray] | None = None,
        state: SharedArrays | None = None,
        seed: int = 0,
        follow_host: bool = True,
        ranks: Ranks | None = None,
    ) -> None:
        self.compiled = compiled
        self._ranks = joined_ranks(compiled.schedule, ranks)
        self.weights = weights if isinstance(weights, SharedArrays) else SharedArrays(weights)
        self.state = SharedArrays() if state is None else state
        self._seed = seed
        self._engine: Engine | None = None
        self._feeds: feeds.Feeds | None = None
        self._exponents: ExponentRecorder | None = None
        self._attached = self._closed = False
        self._optimisers = compiled.optimisers
        # One guards the engine; attaching takes longer and calls what takes the other, so it has a lock of its own.
        self._lock, self._attaching = ForkLock(), ForkLock()
        ends, updated = compiled.ends, compiled.updated
        self._weights = Mirror(ends.weights, self.weights, self._lock, changing=updated, follow_host=follow_host)
        self._state = Mirror(ends.state, self.state, self._lock, changing=ends.state, follow_host=True)

    @classmethod
    def of(
        cls,
        net: Network,
        schedule: Schedule | None = None,
        *,
        groups: Sequence[Group] | None = None,
        settings: Settings | None = None,
        weights: SharedArrays | Mapping[str, npt.ArrayLike | SharedArray] | None = None,
        state: SharedArrays | None = None,
        seed: int = 0,
    ) -> Self:
        """Compile a network and make a session of it; see :func:`compile_network` for what it raises."""
        compiled = compile_network(net, schedule, groups=groups, settings=settings)
        return cls(compiled, weights=weights, state=state, seed=seed)

    # --- running -------------------------------------------------------------------------------------------------

    def run(
        self, inputs: Inputs = (), *, outfeed: feeds.Outfeed | None = None, times: CallTimes | None = None
    ) -> feeds.Results:
        """Run once.

        Args:
            inputs: For each input, in order or by name, an array that holds the micro-batches of the run one after
                the other along the first dimension; or an iterable, of which the run takes one micro-batch at a time.
            outfeed: Called with the number of each micro-batch whose outputs come back, and these outputs, while the
                run goes on; the outputs of the result are then empty.
            times: Seconds that the caller has spent on inputs; the run's seconds for inputs and outputs are added, and
                the report has it.

        Returns:
            Outputs as the schedule says, and what became of inputs that the network changes.

        Raises:
            SignatureError: Inputs that differ in number, name, shape or type from what was compiled.
            TensorIndexError: An integer outside its bounds, such as a label that no class has.
            ElementRangeError: An integer that does not fit in the 32 bits of the device.
            StreamConnectionError: An iterable that ends before the run does.
            SessionError: The session is closed.
            UnknownArrayError: A parameter or buffer without values.
        """
        if not self._attached:
            self.attach()
        times, begin = times or CallTimes(), time.perf_counter()
        times.waiting_seconds += take_waited()
        self._refresh()
        engine, streams = self._loaded("run"), self._feeds
        assert streams is not None
        # Checked before the lock: inputs that do not fit keep no other thread waiting.
        sent = streams.read(inputs)
        with self._lock.held():
            streams.connect(sent, outfeed)
            times.sending_seconds += time.perf_counter() - begin
            ended = False
            try:
                ended = engine.run(times=times)
                if self._exponents is not None:
                    self._exponents.note_run(engine, self._arrays("be looked at"))
                begin = time.perf_counter()
                results = streams.results()
            finally:
                self._weights.note_run()
                self._state.note_run()
                if not ended:
                    streams.forget()
        times.reading_seconds += time.perf_counter() - begin
        return results

    def __call__(self, *inputs: Any) -> tuple[Array, ...]:
        """The outputs of one run on these inputs."""
        return self.run(inputs).outputs

    # --- the device ----------------------------------------------------------------------------------------------

    @property
    def _rank(self) -> int:
        return 0 if self._ranks is None else self._ranks.rank

    @property
    def status(self) -> str:
        """``compiled``, ``attached`` or ``closed``."""
        return "closed" if self._closed else "attached" if self._attached else "compiled"

    @property
    def attached(self) -> bool:
        """True if the program and its weights are on the device."""
        return self._attached

    def attach(self) -> bool:
        """Load the program and the host's weights, if they are not there; returns whether that is the first time.

        Raises:
            SessionError: The session is closed.
            UnknownArrayError: A parameter or buffer without values.
        """
        with self._attaching.held():
            self._check_open("be attached")
            if self._attached:
                return False
            self._check_arrays()
            if self._ranks is not None:
                check_alike(self._ranks, self.compiled, self.weights, self.state, self._optimisers)
            first, engine = self._engine is None, self._loaded("be attached")
            # No run has changed it yet, so the state that nobody gave is what the program starts with.
            self._adopt_state()
            self._weights.upload()
            if first:
                self.random_state = [self._seed & 0xFFFFFFFF, 0]
                self._write_numbers(engine)
            self._state.refresh()
            for mirror in (self._weights, self._state):
                mirror.hold()
            self._attached = True
            return first

    def _check_arrays(self) -> None:
        """Raise unless every weight has values of its shape."""
        ends, replicas = self.compiled.ends, self.schedule.replicas
        for name, end in ends.weights.items():
            self.weights.check(name, end.host_shape(replicas))
        for name, end in ends.state.items():
            if name in self.state:
                self.state.check(name, end.host_shape(replicas))

    def detach(self) -> None:
        """Bring the weights to the host and let another session use the device; the state of optimisers stays.

        Raises:
            SessionError: It is not on the device.
        """
        self._check_open("be detached")
        if not self._attached:
            raise SessionError("the session cannot be detached: it is not on the device", remedy="attach() it first")
        self._weights.bring_to_host()
        self._attached = False

    def close(self) -> None:
        """Bring the weights to the host, and let go of the program and its threads; a second time does nothing."""
        if self._closed:
            return
        for mirror in (self._weights, self._state):
            mirror.bring_to_host()
            mirror.detach()
        if self._engine is not None:
            self._engine.close()
        self._engine = self._feeds = None
        self._attached, self._closed = False, True

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise SessionError(
                f"the session cannot {what}: it is closed", remedy="make another one from session.compiled"
            )

    def _loaded(self, what: str) -> Engine:
        """The engine; made on first use.

        Raises:
            SessionError: The session is closed.
        """
        self._check_open(what)
        if self._engine is None:
            settings = self.compiled.settings
            if settings.exponents:
                self._exponents = ExponentRecorder(self.compiled, settings.exponents, settings.exponents_every)
            self._engine = Engine(
                self.compiled.executable,
                mode=settings.mode,
                threads=settings.threads or None,
                options=settings.engine,
                ranks=self._ranks,
                keep=() if self._exponents is None else self._exponents.keep,
                report_folder=settings.report_folder_of(training=self.compiled.training),
            )
            self._engine.print_stream = sys.stderr
            for name in self.compiled.executable.graph.host_functions:
                body = body_of_host_function(name)
                if body is not None:
                    self._engine.connect_function(name, body)
            self._feeds = feeds.Feeds(self._engine, self.compiled)
            for mirror in (self._weights, self._state):
                mirror.attach(DeviceArrays(self._engine, self.schedule, self._rank))
        return self._engine

    def _arrays(self, what: str) -> DeviceArrays:
        """The tensors of the engine, as the host has them.

        Raises:
            SessionError: The session is closed.
        """
        return DeviceArrays(self._loaded(what), self.schedule, self._rank)

    # --- weights and state ---------------------------------------------------------------------------------------

    def upload(self, names: Collection[str] | None = None) -> None:
        """Copy the host's weights to the device; what the device has learnt and nobody looked at is lost.

        Args:
            names: Names of weights; all when left out.

        Raises:
            SessionError: The session is closed.
        """
        self._loaded("take weights")
        self._weights.upload(names)

    def download(self) -> None:
        """Copy the device's weights to the host, but for those that another session holds.

        Raises:
            SessionError: The session is closed.
        """
        self._loaded("give weights")
        self._weights.download()

    def read(self, name: str) -> Array:
        """Values of one parameter or buffer as the device has them; the host's copy stays as it is.

        Raises:
            SessionError: The session is closed.
            UnknownArrayError: There is none of this name.
        """
        self.weights.cell(name)
        with self._lock.held():
            return self._arrays("give weights").read(self.compiled.ends.weights[name])

    def bring_to_host(self) -> bool:
        """Copy weights to the host if runs changed them since the last time; returns whether they did."""
        return self._weights.bring_to_host()

    def on_weights_copied(self, told: Callable[[str], None]) -> None:
        """Call ``told`` with ``host`` or ``device`` whenever weights were copied there without being asked for."""
        self._weights.told = told

    def _refresh(self) -> None:
        """Take over values written on the host, or by other sessions, since the last run."""
        for mirror in (self._weights, self._state):
            mirror.refresh()
            mirror.hold()

    def _adopt_state(self) -> None:
        """Add the state of optimisers that nobody gave, as the program starts it."""
        arrays = self._arrays("be attached")
        for name, end in self.compiled.ends.state.items():
            if name not in self.state:
                # Streaming memory begins as zeros; what is put here is uploaded before the first run.
                is_remote, shape = end.is_remote, end.host_shape(self.schedule.replicas)
                initial = 0.0 if end.flat is None else end.flat.initial
                self.state[name] = np.full(shape, initial, end.np) if is_remote else arrays.read(end)

    def replace_optimisers(self, optimisers: Sequence[Optimiser]) -> None:
        """Take over the numbers of other optimisers, such as a new learning rate; the next run uses them.

        Args:
            optimisers: One for each group that was compiled; they may differ in what is variable.

        Raises:
            SessionError: The session does not train.
            InvalidOptionError: Another number of optimisers, another rule, or a constant that changed.
        """
        compiled = self._optimisers
        if compiled is None:
            raise SessionError("the session cannot take optimisers: it was compiled for inference")
        check_optimisers(compiled, optimisers)
        self._optimisers = tuple(optimisers)
        if self._engine is not None:
            self._write_numbers(self._engine)

    @property
    def optimisers(self) -> tuple[Optimiser, ...] | None:
        """The optimisers whose numbers the next run uses; None for inference."""
        return self._optimisers

    def _write_numbers(self, engine: Engine) -> None:
        for ends, optimiser in zip(self.compiled.ends.numbers, self._optimisers or (), strict=True):
            for name, end in ends.items():
                engine.write(end.handle, np.float32(optimiser.numbers[name]))

    @property
    def random_state(self) -> list[int]:
        """The state of random ops, the seed first; empty without any. It can be set.

        It is that of the first replica; the others follow from it.
        """
        end = self.compiled.ends.seed
        return [] if end is None else self._arrays("tell its random state").read_random(end)

    @random_state.setter
    def random_state(self, state: Sequence[int]) -> None:
        end = self.compiled.ends.seed
        if end is not None:
            self._arrays("take a random state").write_random(end, state)

    # --- what is known -------------------------------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """Schedule of one run over its micro-batches."""
        return self.compiled.schedule

    @property
    def executable(self) -> Executable:
        """The compiled program."""
        return self.compiled.executable

    @property
    def report(self) -> Report:
        """Cost of the program on the machine, and of runs on the host if there were any."""
        found = self.executable.report if self._engine is None else self._engine.report
        return found if self._exponents is None else self._exponents.added_to(found)

    @contextmanager
    def profiling(self, clock: str = "wall") -> Iterator[None]:
        """Runs inside are measured, leaf by leaf; see :meth:`abele.Engine.profiling`.

        Raises:
            SessionError: The session is closed.
            InvalidOptionError: There is no such clock.
        """
        with self._loaded("be measured").profiling(clock):
            yield

    def profile(self, *, against: bool = False) -> HostProfile:
        """Profile of measured runs on the host.

        Args:
            against: Also measure what the best library at hand does on the same products; some seconds.

        Raises:
            SessionError: The session is closed.
            ProfilingDisabledError: No run was measured.
        """
        return self._loaded("tell a profile").profile(against=against)

    @property
    def variable_names(self) -> list[str]:
        """Names of the variables on the device."""
        return [v.name for v in self.executable.graph.variables]

    # --- end -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """Bring the weights to the host, so that training is not lost with its session."""
        if not sys.is_finalizing() and self.__dict__.get("_engine") is not None:
            with contextlib.suppress(Exception):
                self.close()

    def __repr__(self) -> str:
        kind = "training" if self.compiled.training else "inference"
        per_run = counted(self.schedule.micro_batches, "micro-batch")
        return f"Session({self.compiled.settings.name}, {kind}, {per_run} per run, {self.status})"
