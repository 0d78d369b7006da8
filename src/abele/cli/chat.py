"""``abele demo chat``: ask a small language model, and see what its tokens cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from abele.cli.option_types import BackendOption, QuantiseOption, SystemOption, ThreadsOption, WeightTypeOption
from abele.cli.output import console, print_json

ABOUT = "Ask SmolLM2, a language model of 135 million parameters, and see what its tokens cost."
_PROMPT = "you: "


def chat(
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="Ask this and end; may be given again.")
    ] = None,
    model: Annotated[str, typer.Option("--model", help="GGUF file, folder of Hugging Face's, or smollm2.")] = "smollm2",
    system_message: Annotated[str | None, typer.Option("--system-message", help="Begins the conversation.")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option("--temperature", help="0 takes the likeliest token.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the draws.")] = 0,
    positions: Annotated[int, typer.Option("--positions", min=1, help="Longest conversation in tokens.")] = 256,
    quantise: QuantiseOption = None,
    dtype: WeightTypeOption = None,
    backend: BackendOption = "compiled",
    system: SystemOption = "bow-2000:1",
    threads: ThreadsOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to standard error.")] = False,
) -> None:
    """Ask questions, on the terminal where there is one."""
    from abele.garden.training import require

    require("torch", "tokenizers", "jinja2", extra="llm")
    out = console(progress_only=json)
    out.print(Text(f"abele demo chat: loading {model} …", style="dim"))
    from abele.garden import chat as demo
    from abele.llm.serving.opening import OpeningSettings, backend_named
    from abele.machine import systems

    settings = demo.ChatSettings(
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        system=system_message,
        opening=OpeningSettings(
            backend=backend_named(backend),
            system=systems.resolve(system),
            threads=threads,
            slots=1,
            positions=positions,
            dtype=dtype,
            quantise=quantise,
            top=0,
            draws=temperature != 0,
        ),
    )
    result = demo.run(settings, out, _questions(question, demo.QUESTION, out))
    if json:
        print_json(result.to_json())
        return
    out.print()
    if result.account is None:
        out.print(Text("Nothing was modelled: the model ran in plain PyTorch.", style="dim"))
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for label, text in demo.account_lines(result.account):
        grid.add_row(label, Text(text))
    out.print(grid)
    if result.report is not None:
        from abele.report.render import render

        out.print(render(result.report))


def _questions(given: Sequence[str] | None, fixed: str, out: Console) -> Iterator[str]:
    """Questions of the command line, of the terminal, or the fixed one."""
    if given:
        yield from given
    elif sys.stdin is None or not sys.stdin.isatty():
        yield fixed
    else:
        out.print(Text("An empty line ends the chat.", style="dim"))
        while (line := _line()).strip():
            yield line


def _line() -> str:
    try:
        return input(_PROMPT)
    except EOFError:
        return ""
