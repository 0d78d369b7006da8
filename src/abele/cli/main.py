"""Entry point of the ``abele`` command, and how errors leave it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import abele
from abele.cli.cache import cache_app
from abele.cli.debug import debug
from abele.cli.demo import demo_app
from abele.cli.export import export
from abele.cli.fit import fit
from abele.cli.hosts import hosts
from abele.cli.onnx import onnx_command
from abele.cli.output import print_error
from abele.cli.pack import pack_command
from abele.cli.plan import plan_app
from abele.cli.plan_sparse import sparse_matmul
from abele.cli.report import report
from abele.cli.run import run
from abele.cli.serve import serve_command
from abele.cli.systems import systems
from abele.cli.validate import validate
from abele.cli.view import view
from abele.errors import AbeleError, EngineError, LaunchError, OutOfMemoryError
from abele.terminal import prepare_output

_RUN_FAILURES = (EngineError, LaunchError, OutOfMemoryError)

app = typer.Typer(
    name="abele",
    help="The IPU in software: run tile programs for real, see every tile, cycle and byte.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(systems)
app.command()(hosts)
app.add_typer(demo_app, name="demo")
app.command()(report)
app.command()(export)
plan_app.command("sparse-matmul")(sparse_matmul)
app.add_typer(plan_app, name="plan")
app.command()(fit)
app.command("pack")(pack_command)
app.command("onnx")(onnx_command)
app.add_typer(cache_app, name="cache")
app.command()(validate)
app.command()(view)
app.command("serve")(serve_command)
app.command(context_settings={"ignore_unknown_options": True})(debug)
app.command(context_settings={"allow_interspersed_args": False})(run)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"abele {abele.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """The IPU in software: run tile programs for real, see every tile, cycle and byte."""


def main() -> None:
    """Run the command line; errors are printed without traceback.

    Exit status: 0 done, 1 a run failed, 2 something given was wrong, 130 interrupted.
    """
    prepare_output()
    try:
        app()
    except AbeleError as error:
        print_error(error)
        sys.exit(1 if isinstance(error, _RUN_FAILURES) else 2)
    except KeyboardInterrupt:
        print("abele: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
