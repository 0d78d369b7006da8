"""``abele serve``: a language model behind OpenAI's interface, and a page to talk to it."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from abele.cli.option_types import BackendOption, QuantiseOption, SystemOption, ThreadsOption, WeightTypeOption
from abele.errors import MissingPackageError

_FORMAT = "%(asctime)s %(message)s"


def serve_command(
    model: Annotated[str, typer.Argument(help="GGUF file, folder of Hugging Face's, or smollm2.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on; others than the loopback are public.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0 for any free one.")] = 8000,
    name: Annotated[str | None, typer.Option("--name", help="Name that clients give; that of the file.")] = None,
    slots: Annotated[int, typer.Option("--slots", min=1, help="Sequences under way at once.")] = 8,
    positions: Annotated[
        int | None, typer.Option("--positions", min=1, help="Longest sequence; 2,048, or the model's context.")
    ] = None,
    quantise: QuantiseOption = None,
    dtype: WeightTypeOption = None,
    backend: BackendOption = "eager",
    system: SystemOption = "bow-2000:1",
    threads: ThreadsOption = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Tokens that the device makes per call.")] = 1,
    key: Annotated[
        str | None, typer.Option("--key", envvar="ABELE_SERVE_KEY", help="Key that clients must bring.")
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option("--origin", help="Origin of another site whose pages may ask.")
    ] = None,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Continuations that may wait for a slot.")] = 256,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Most tokens that a request may ask for.")
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option("--prompt-tokens", min=1, help="Longest prompt.")] = None,
    body_bytes: Annotated[int, typer.Option("--body-bytes", min=1, help="Largest body of a request.")] = 4 << 20,
    request_seconds: Annotated[float, typer.Option("--request-seconds", help="Longest time of a request.")] = 600.0,
    grace_seconds: Annotated[
        float, typer.Option("--grace-seconds", help="Time that running requests get when the server stops.")
    ] = 20.0,
) -> None:
    """Serve a language model: OpenAI's interface under /v1, a page to talk to it, /health and /metrics.

    SIGTERM or Ctrl-C stops it when what runs has finished; a second one at once.
    """
    _require_packages()
    from abele.llm.serving.limits import ServingLimits
    from abele.llm.serving.opening import OpeningSettings, backend_named, open_model
    from abele.llm.serving.server import serve
    from abele.machine import systems

    limits = ServingLimits(
        body_bytes=body_bytes,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        queue=queue,
        request_seconds=request_seconds,
        grace_seconds=grace_seconds,
    )
    settings = OpeningSettings(
        backend=backend_named(backend),
        system=systems.resolve(system),
        threads=threads,
        slots=slots,
        positions=positions,
        dtype=dtype,
        quantise=quantise,
        steps=steps,
        name=name,
    )
    _log_requests()
    typer.echo(f"loading {model} …", err=True)
    offered = open_model(model, settings)

    def started(address: str) -> None:
        typer.echo(f"{offered.name}: {address}v1, a page at {address}\nCtrl-C stops the server")
        sys.stdout.flush()

    serve(offered, host=host, port=port, key=key, origins=origin or (), limits=limits, started=started)


def _require_packages() -> None:
    """The packages that serving needs are installed.

    Raises:
        MissingPackageError: One is not.
    """
    try:
        import starlette
        import tokenizers
        import torch
        import uvicorn
    except ImportError as error:
        raise MissingPackageError(
            f"abele serve needs {error.name}, which is not installed", remedy="pip install 'abele[serve]'"
        ) from error
    del starlette, tokenizers, torch, uvicorn


def _log_requests() -> None:
    """A line of log per request on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    log = logging.getLogger("abele.serving")
    log.setLevel(logging.INFO)
    log.handlers, log.propagate = [handler], False
