"""``abele run``: a Python program as ranks of one job, on one host or many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from abele.cli.output import print_error


def run(
    program: Annotated[str, typer.Argument(help="The Python file; with -m, a module.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the program is given.")] = None,
    ranks: Annotated[int, typer.Option("--ranks", "-n", "--num-instances", help="Processes.")] = 1,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            "--num-replicas",
            help="Replicas of all processes together; each has as many by default in options.replicationFactor.",
        ),
    ] = None,
    hosts: Annotated[str, typer.Option("--hosts", "--host", help="Hosts with commas between, for mpiexec.")] = "",
    hostfile: Annotated[Path | None, typer.Option("--hostfile", help="A file of hosts, for mpiexec.")] = None,
    tag_output: Annotated[
        bool, typer.Option("--tag-output/--no-tag-output", help="Begin each line with the rank that printed it.")
    ] = True,
    timeout: Annotated[
        float,
        typer.Option(help="End the job so many seconds after a rank died or held up others; 0: never."),
    ] = 10.0,
    module: Annotated[bool, typer.Option("--module", "-m", help="Run a module.")] = False,
) -> None:
    """Run a Python program as several processes that share its replicas, by MPI.

    All of them end when one is lost: the exit status is that of the first such, which is told of.
    """
    from abele.launch.launcher import Job, Launcher

    job = Job(
        program=(*(["-m"] if module else []), program, *(arguments or [])),
        ranks=ranks,
        replicas=replicas,
        hosts=hosts,
        hostfile=hostfile,
        tag_output=tag_output,
        timeout_seconds=timeout,
    )
    job.check()
    launcher = Launcher(job)
    status = launcher.run()
    if launcher.reason is not None:
        print_error(launcher.reason)
    raise typer.Exit(status)
