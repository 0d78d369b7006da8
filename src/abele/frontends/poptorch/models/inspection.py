"""Inspection of a wrapped model: its program, its cost, its weights as a file."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from abele import trace
from abele.compiler import Executable
from abele.frontends.poptorch.errors import CheckError, Error
from abele.frontends.poptorch.loading.accessor import AsynchronousDataAccessor
from abele.frontends.poptorch.loading.measure import measure_loading
from abele.frontends.poptorch.models.compiling import CompiledModel, Latencies
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.environment import proto_file
from abele.frontends.poptorch.options.options import ANCHOR_NAMES
from abele.frontends.poptorch.program.profiling import tracepoints
from abele.frontends.poptorch.values.tensors import from_array
from abele.machine import HostComputer, hosts
from abele.network import Network
from abele.network.ir import network_text
from abele.report import HostProfile, Report
from abele.report.display import view_hint
from abele.runtime.engine.run_log import REPORT_NAME
from abele.session import SharedArrays
from abele.trace.environment import begin_from_environment
from abele.trace.shared import hold_recording
from abele.writing import writing

if TYPE_CHECKING:
    from abele.viewer import Page, Viewer

NOT_COMPILED = "Model has not been compiled or has been destroyed."


class Inspection(Latencies):
    """The part of a wrapped model that tells about it."""

    _options: Options
    _compiled: CompiledModel | None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The newest weights."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> Any:
        """Load weights."""
        raise NotImplementedError

    def _require(self) -> CompiledModel:
        if self._compiled is None:
            raise Error(NOT_COMPILED)
        return self._compiled

    def __abele_network__(self) -> tuple[Network, SharedArrays]:
        """The model as it was recorded and its newest weights, as :func:`abele.onnx.export` asks for them.

        Raises:
            Error: Nothing is compiled yet.
        """
        compiled = self._require()
        return compiled.captured.net, compiled.session.weights

    @property
    def executable(self) -> Executable:
        """The compiled program."""
        return self._require().session.executable

    def report(
        self,
        data: torch.utils.data.DataLoader[Any] | AsynchronousDataAccessor | None = None,
        host: str | Path | HostComputer | None = None,
    ) -> Report:
        """Cost of the program on the machine, times of runs on the host, and records of profiling channels.

        Args:
            data: The model's loader: some of its samples are made and timed, and the report says which of device, link
                and loader limits the rate.
            host: The host that ``data`` is loaded on; a preset's name, a description file, or a value.

        Raises:
            Error: Nothing is compiled yet, or ``data`` cannot be measured.
            MachineError: There is no such host.
            InvalidOptionError: Batches of ``data`` are not those that the model takes.
        """
        report = self._require().session.report
        if data is not None:
            report = report.with_loading(measure_loading(data, hosts.resolve(host)))
        spans = [vars(span) for span in tracepoints()]
        return report.with_meta(tracepoints=spans) if spans else report

    def _begin_trace(self) -> None:
        """Record a trace if the environment says so, or if ``Options.enableProfiling`` did, until :meth:`destroy`."""
        begin_from_environment()
        if self._options.profile_dir is not None:
            hold_recording(self, Path(self._options.profile_dir))

    def view(self) -> Page | Viewer:
        """Show what :meth:`report` gives: in the cell of a notebook, else in the browser.

        Returns:
            The result of :func:`abele.viewer.show`.

        Raises:
            Error: Nothing is compiled yet.
            MissingPackageError: The packages of the extra ``view`` are not installed.
        """
        from abele.viewer import show

        return show(self.report())

    def _write_profile(self, compiled: CompiledModel) -> None:
        """Write the report where ``Options.enableProfiling`` said."""
        if self._options.profile_dir is None:
            return
        made = compiled.session.compiled
        folder = made.settings.report_folder_of(training=made.training)
        path = Path(self._options.profile_dir, folder, REPORT_NAME)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        compiled.session.executable.report.save(path)
        trace.flush()
        print(view_hint(path), file=sys.stderr)

    def _export_proto(self, compiled: CompiledModel) -> None:
        """Write the recorded network as text to the file that the environment names; folders above it are made."""
        path = proto_file()
        if path is None:
            return
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(network_text(compiled.captured.net) + "\n", encoding="utf-8")

    def _debugGetPopartIR(self) -> str:
        """The model as it was recorded, as JSON: its operations with their inputs, outputs and attributes.

        Raises:
            Error: Nothing is compiled yet.
        """
        net = self._require().captured.net
        ops = [
            {
                "name": op.debug.path,
                "type": op.kind,
                "inputs": [{"name": v.name, "type": v.dtype.name, "shape": list(v.shape)} for v in op.inputs],
                "outputs": [{"name": v.name, "type": v.dtype.name, "shape": list(v.shape)} for v in op.outputs],
                "attributes": {key: str(value) for key, value in op.attrs.items()},
            }
            for op in net.ops
        ]
        return json.dumps({"maingraph": ops})

    @contextmanager
    def profiling(self, clock: str = "wall") -> Iterator[None]:
        """Calls of the model inside are measured on the host, leaf by leaf; calls outside pay nothing for it.

        Args:
            clock: ``wall``: time that passes; ``processor``: time that threads are given a core for.

        Raises:
            Error: Nothing is compiled yet.
            InvalidOptionError: There is no such clock.
        """
        with self._require().session.profiling(clock):
            yield

    def profile(self, *, against: bool = False) -> HostProfile:
        """Times of measured calls on the host: time, arithmetic and bytes of every native function and copy.

        Args:
            against: Also measure what the best library at hand does on the same products; some seconds.

        Raises:
            Error: Nothing is compiled yet.
            ProfilingDisabledError: No call was measured.
        """
        return self._require().session.profile(against=against)

    def cycleCount(self) -> int:
        """Cycles of one call on the machine.

        Raises:
            Error: Cycle counts were not asked for, or nothing is compiled.
        """
        if not self._options.log_cycle_count:
            raise Error("Cycle count logging is disabled. Please set option logCycleCount to True to enable.")
        if self._counters.times is None:
            raise Error("Please run the model at least once before obtaining cycle count.")
        return int(self._require().session.report.total_cycles)

    def compilationTime(self) -> datetime.timedelta:
        """Time that compiling took.

        Raises:
            Error: Nothing is compiled yet.
        """
        if self._compiled is None:
            raise Error("Please compile the model before obtaining compilation time.")
        if not self._options.show_compilation_progress_bar:
            raise Error("Please set showCompilationProgressBar option to obtain compilation time.")
        return datetime.timedelta(seconds=self._compiled.seconds)

    def getTensorNames(self) -> list[str]:
        """Names that tensors can be anchored by: inputs, weights, ``Gradient___`` and ``UpdatedVar___`` of what is
        trained, and the variables on the device.

        Raises:
            CheckError: Nothing is compiled yet.
        """
        if self._compiled is None:
            raise CheckError("Tensor names are only available once the model has been compiled.")
        net, compiled = self._compiled.captured.net, self._compiled.session.compiled
        trained = [p.name for p in net.parameters if compiled.training and p.name in compiled.updated]
        own = [value.name for value in (*net.inputs, *net.parameters, *net.buffers)]
        of_training = [prefix + name for prefix in ANCHOR_NAMES for name in trained]
        return list(dict.fromkeys([*own, *of_training, *self._compiled.session.variable_names]))

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """A tensor that ``Options.anchorTensor`` named, as the last call left it.

        Args:
            short_name: Name of the tensor in the options.

        Raises:
            Error: Nothing is compiled or was run yet, or the options name no such tensor.
        """
        compiled, names = self._require(), list(self._options.anchored_tensors)
        if short_name not in names:
            raise Error(
                f"No tensor is anchored as {short_name!r}", because=f"anchored are {', '.join(names) or 'none'}"
            )
        if not compiled.anchors:
            raise Error("Please run the model at least once before obtaining anchored tensors.")
        return from_array(compiled.anchors[names.index(short_name)])
