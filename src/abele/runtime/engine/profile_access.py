"""What an engine tells of its runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, Any

from abele.report import Report, Table
from abele.runtime.engine.run_log import RunLog, profile_summary
from abele.terminal import shown_text


class ProfileAccess:
    """Mix-in of :class:`Engine`: recorded runs, and the summary of its report."""

    _log: RunLog

    @property
    def report(self) -> Report:
        """What the program costs on the machine, and what its recorded runs took on the host."""
        raise NotImplementedError

    @property
    def runs(self) -> Table:
        """The recorded runs; columns as ``abele.report.RUNS``.

        Raises:
            ProfilingDisabledError: Runs are not recorded.
        """
        return self._log.table()

    def print_profile_summary(self, stream: IO[str] | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Print what the program costs.

        Args:
            stream: Where to; standard output when left out.
            options: ``showExecutionSteps``, ``showVarStorage``, ``showOptimizations``; each true or false.

        Raises:
            ProfilingDisabledError: Execution steps are asked for, and runs are not recorded.
            InvalidOptionError: An unknown option or value.
        """
        text = profile_summary(self.report, self._log.table, options or {})
        print(shown_text(text, stream), file=stream or sys.stdout)

    def enable_execution_profiling(self) -> None:
        """Record runs from here on."""
        self._log.enable()

    def disable_execution_profiling(self) -> None:
        """Record no runs from here on."""
        self._log.disable()

    def reset_execution_profile(self) -> None:
        """Forget the runs recorded so far."""
        self._log.reset()
