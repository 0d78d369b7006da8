"""Job to be started: its program, ranks and hosts, and the checks of its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from abele.errors import GraphReplicationError, InvalidOptionError
from abele.job.launched import is_launched


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks that run one program.

    Attributes:
        program: The Python file and its arguments; or ``-m``, a module and its arguments.
        ranks: Number of processes that run it.
        replicas: Replicas of all ranks together; None where the program says.
        hosts: Names of hosts with commas between, for ``mpiexec``; empty for this one.
        hostfile: A file of hosts, for ``mpiexec``.
        tag_output: True if each line that a rank prints begins with its number.
        timeout_seconds: Time after which a job that one rank holds up is ended; 0 for never.
    """

    program: tuple[str, ...]
    ranks: int = 1
    replicas: int | None = None
    hosts: str = ""
    hostfile: Path | None = None
    tag_output: bool = True
    timeout_seconds: float = 10.0

    def check(self) -> None:
        """Raise unless the job can be started from here.

        Raises:
            InvalidOptionError: A number out of range, no such program or file, or a job within a job.
            GraphReplicationError: The replicas do not divide into the ranks.
        """
        for name, value in (("ranks", self.ranks), ("replicas", 1 if self.replicas is None else self.replicas)):
            if value < 1:
                raise InvalidOptionError(f"{name} = {value}: must be at least 1")
        if not self.timeout_seconds >= 0:
            raise InvalidOptionError(f"timeout = {self.timeout_seconds:g}: must be 0 or more seconds")
        if self.replicas is not None and self.replicas % self.ranks:
            raise GraphReplicationError(
                f"{self.replicas} replicas cannot be shared by {self.ranks} ranks: each runs equally many",
                remedy=f"--replicas {-(-self.replicas // self.ranks) * self.ranks}",
            )
        if is_launched():
            raise InvalidOptionError(
                "abele run was started as a rank of another job",
                because="it starts ranks itself",
                remedy="abele run by itself, or mpiexec with python in its place",
            )
        if self.hosts and self.hostfile is not None:
            raise InvalidOptionError("hosts and a file of hosts exclude each other", remedy="one of the two")
        if self.hostfile is not None and not self.hostfile.is_file():
            raise InvalidOptionError(f"there is no file {self.hostfile}", remedy="a file with a host on each line")
        if self.program[0] != "-m":
            self._check_program(Path(self.program[0]))

    def _check_program(self, program: Path) -> None:
        if not program.exists() and (self.hosts or self.hostfile is not None):
            # Other hosts may have it.
            return
        if not program.is_file() and not (program / "__main__.py").is_file():
            raise InvalidOptionError(f"there is no program {program}", remedy="abele run --ranks 2 PROGRAM.py")
        if program.is_dir() or program.suffix in (".pyc", ".pyz", ".zip"):
            return
        try:
            compile(program.read_bytes(), str(program), "exec", dont_inherit=True)
        except OSError as error:
            raise InvalidOptionError(f"{program} cannot be read: {error.strerror}") from error
        except (SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise InvalidOptionError(
                f"{program} is no Python program", at=f"{program}{line}", because=reason, remedy="a file of Python code"
            ) from error
