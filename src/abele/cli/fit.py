"""``abele fit``: the smallest machine that holds a model, and the fastest way to spread it over a machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from abele.cli.fit_onnx import OnnxChoice, is_onnx
from abele.cli.option_types import SystemOption
from abele.cli.output import console, print_json
from abele.errors import InvalidOptionError, MissingPackageError

if TYPE_CHECKING:
    from abele.cli.fit_answer import FitAnswer, FitQuestion


def fit(
    model: Annotated[
        str,
        typer.Argument(
            help="bert-large, bert-base, resnet-50 or gpt2-medium; path/to/file.py:function; or an ONNX file."
        ),
    ],
    system: SystemOption = "pod16",
    batch: Annotated[
        str | None,
        typer.Option("--batch", help="Samples of one update; any number by default. With --decode: 1,8,32."),
    ] = None,
    micro_batch: Annotated[
        str | None, typer.Option("--micro-batch", help="Sizes of the micro-batch to try, such as 2,4,8.")
    ] = None,
    sequence: Annotated[
        str | None, typer.Option("--sequence", help="Sequence lengths, such as 128,512: an answer for each.")
    ] = None,
    half_partials: Annotated[
        bool, typer.Option("--half-partials", help="Keep partial sums of float16 products in float16.")
    ] = False,
    io_tiles: Annotated[
        str,
        typer.Option(
            "--io-tiles",
            help="Tiles of each IPU that load and send while the others compute (32 to 192); or numbers to try: 0,32.",
        ),
    ] = "0",
    tensor: Annotated[
        str,
        typer.Option(
            "--tensor", help="Sizes of groups of replicas that compute one model together, to try: 1,2,4; 1 is none."
        ),
    ] = "1",
    decode: Annotated[
        bool,
        typer.Option(
            "--decode", help="A language model that makes tokens: llama-2-7b or another name, or a JSON file."
        ),
    ] = False,
    prompt: Annotated[int, typer.Option("--prompt", help="With --decode: tokens of a prompt.")] = 512,
    new: Annotated[int, typer.Option("--new", help="With --decode: tokens that follow.")] = 256,
    format: Annotated[
        str, typer.Option("--format", help="With --decode: formats of weights to try: f16,int8,int4-64.")
    ] = "f16",
    inference: Annotated[bool, typer.Option("--inference", help="Run the model forward alone.")] = False,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", help="Of an ONNX file: a dimension or the shape of an input: sequence=128, x=1,3,8,8."),
    ] = None,
    train: Annotated[
        str,
        typer.Option(
            "--train",
            help="Train an ONNX file: cross_entropy, mse or l1 after its first output (mse:NAME), or a tensor.",
        ),
    ] = "",
    optimizer: Annotated[
        str, typer.Option("--optimizer", help="With --train: sgd, momentum, adam, adamw, lamb or rmsprop.")
    ] = "adam",
    check: Annotated[int, typer.Option("--check", help="Compile so many of the fastest as a whole.")] = 1,
    changes: Annotated[
        bool, typer.Option("--changes", help="Say what would make it fit on one IPU, by compiling it so.")
    ] = False,
    code: Annotated[bool, typer.Option("--code/--no-code", help="Print the options of the fastest as code.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to standard error.")] = False,
) -> None:
    """Find the smallest machine that holds a model, and the fastest way to spread it over a machine.

    A function in a file returns the model and the example inputs of one micro-batch, and may return an optimiser too;
    with one the model is trained, else it runs forward alone. A mapping behind these is a plan for --tensor: how each
    named layer is split over a group, as poptorch.tensor_parallel.parallelize_module takes it. An ONNX file runs
    forward alone, or is trained with --train. With --decode it is a language model, and the question what tokens cost.
    """
    if decode:
        _decode(model, system, (prompt, new), batch, format, half_partials=half_partials, json=json)
        return
    if not is_onnx(model) and importlib.util.find_spec("torch") is None:
        raise MissingPackageError(
            "abele fit needs PyTorch, which is not installed", remedy="pip install 'abele[torch]'"
        )
    from abele.cli.fit_answer import FitQuestion, answer, answers_by_length, lengths_text
    from abele.machine import systems

    question = FitQuestion(
        model=model,
        system=systems.resolve(system),
        batch=None if batch is None else _number("--batch", batch),
        micro_batches=None if micro_batch is None else _numbers("--micro-batch", micro_batch),
        half_partials=half_partials,
        io_tiles=_numbers("--io-tiles", io_tiles),
        group_sizes=_numbers("--tensor", tensor),
        inference=inference,
        check=check,
        changes=changes,
        onnx=OnnxChoice(shapes=tuple(shape or ()), train=train, optimizer=optimizer),
    )
    if sequence is None:
        with _progress() as report:
            found = answer(question, report)
        if json:
            print_json({"model": model, **found.data})
        else:
            _show(found, code=code, of=question)
        return
    lengths = _numbers("--sequence", sequence)
    if min(lengths) < 1:
        raise InvalidOptionError(f"--sequence takes positive whole numbers, got {sequence!r}")
    with _progress() as report:
        by_length = answers_by_length(question, lengths, report)
    if json:
        print_json({"model": model, "sequences": {length: found.data for length, found in by_length.items()}})
        return
    if not changes:
        console().print(Text(lengths_text(by_length)), soft_wrap=True)
    for length, found in by_length.items():
        console().print(Text(f"\nsequences of {length:,}\n"), soft_wrap=True)
        _show(found, code=code, of=question)


def _decode(
    model: str, system: str, tokens: tuple[int, int], batch: str | None, format: str, *, half_partials: bool, json: bool
) -> None:
    """Answer what tokens of a language model cost."""
    if importlib.util.find_spec("torch") is None:
        raise MissingPackageError(
            "abele fit --decode needs PyTorch, which is not installed", remedy="pip install 'abele[torch]'"
        )
    from abele.cli.fit_decode import fit_decode
    from abele.machine import systems

    with _progress() as report:
        found = fit_decode(
            model,
            system=systems.resolve(system),
            prompt=tokens[0],
            new=tokens[1],
            batches=_numbers("--batch", batch or "1"),
            formats=tuple(format.split(",")),
            half_partials=half_partials,
            progress=report,
        )
    if json:
        print_json(found.to_json())
    else:
        console().print(Text(str(found)), soft_wrap=True)


def _number(option: str, given: str) -> int:
    numbers = _numbers(option, given)
    if len(numbers) != 1:
        raise InvalidOptionError(f"{option} takes one whole number, got {given!r}", because="several are for --decode")
    return numbers[0]


def _show(found: FitAnswer, *, code: bool, of: FitQuestion) -> None:
    """Print an answer for people."""
    out = console()
    out.print(Text(found.text), soft_wrap=True)
    if code and found.code:
        out.print(Text(f"\nas {'Python' if is_onnx(of.model) else 'PyTorch'} code:\n\n{found.code}"), soft_wrap=True)


def _numbers(option: str, given: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in given.split(","))
    except ValueError:
        raise InvalidOptionError(f"{option} takes whole numbers separated by commas, got {given!r}") from None
    return found


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """Report of progress on standard error, where that is a terminal."""
    out = console(progress_only=True)
    if not out.is_terminal:
        yield lambda _what, _part: None
        return
    with out.status("") as status:
        yield lambda what, part: status.update(f"{what} ({100 * part:.0f} %)" if part else what)
