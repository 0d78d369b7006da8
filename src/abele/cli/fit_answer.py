"""Answers of ``abele fit``, kept for models with a name.

An answer depends on the model's name, the options, the machine, and the versions of this package and of PyTorch. It is
kept in the cache under all of these, so that saying it again needs neither PyTorch nor a search. A model in a file may
depend on anything, and is searched each time; costs of its parts are kept.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from abele.cli.fit_models import is_file, named_model
from abele.cli.fit_onnx import OnnxChoice, is_onnx
from abele.cli.fit_onnx import found as found_of_onnx
from abele.errors import FittingError, InvalidOptionError
from abele.llvm.kept import kept
from abele.machine import System
from abele.own_code import own_code

if TYPE_CHECKING:
    from abele.frontends.poptorch import Options

Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class FitQuestion:
    """A question about a model.

    Attributes:
        model: Its name, that of a function in a file, or the path of an ONNX file.
        system: The machine.
        batch: Samples of an update; None for any.
        micro_batches: Sizes to try; None for those that pay.
        sequence: Positions of a sequence; None for the model's usual number.
        half_partials: True to keep partial sums in float16.
        io_tiles: Numbers of IO tiles to try.
        group_sizes: Sizes of groups of replicas that compute one model together, to try.
        inference: True to run it forward alone.
        check: Number of the fastest plans that are compiled as a whole.
        changes: True to ask what makes the model fit on one IPU, and not how to spread it.
        onnx: Choices of an ONNX file.
    """

    model: str
    system: System
    batch: int | None = None
    micro_batches: tuple[int, ...] | None = None
    sequence: int | None = None
    half_partials: bool = False
    io_tiles: tuple[int, ...] = (0,)
    group_sizes: tuple[int, ...] = (1,)
    inference: bool = False
    check: int = 1
    changes: bool = False
    onnx: OnnxChoice = field(default_factory=OnnxChoice)


@dataclass(frozen=True, kw_only=True)
class FitAnswer:
    """An answer to it.

    Attributes:
        text: For people.
        code: The fastest plan as code; empty without one.
        content: All as JSON.
    """

    text: str
    code: str
    content: str

    @property
    def data(self) -> dict[str, Any]:
        """All as plain data."""
        return json.loads(self.content)  # type: ignore[no-any-return]


def answer(question: FitQuestion, progress: Progress) -> FitAnswer:
    """The answer to a question: said before, or found now.

    Raises:
        FittingError: Nothing fits, nothing can be cut, or no division of the batch is left.
        AbeleError: As of finding, recording and compiling the model.
    """
    if is_onnx(question.model):
        return found_of_onnx(question, progress)
    if question.onnx != OnnxChoice():
        raise InvalidOptionError(
            f"--shape, --train and --optimizer are of ONNX files, and {question.model} is none",
            remedy="a function in a Python file returns an optimizer to train its model (docs/fit.md)",
        )
    if is_file(question.model):
        return _found(question, progress)
    versions = f"{own_code()} {importlib.metadata.version('torch')}"
    return kept(f"{versions} {question!r}", FitAnswer, lambda: _found(question, progress))


def _found(question: FitQuestion, progress: Progress) -> FitAnswer:
    from abele.fitting import fitted_text
    from abele.fitting.heap import keep_freed_memory
    from abele.frontends.poptorch.fitting import changes_to_fit, fit

    keep_freed_memory()
    progress("make the model", 0.0)
    model, example, optimizer, split = named_model(question.model, question.sequence)
    if question.inference:
        optimizer = None
    if split is None and max(question.group_sizes) > 1:
        raise InvalidOptionError(
            f"--tensor: {question.model} has no plan that says how its layers are split over replicas",
            remedy='a function that returns one last: return model, example, optimizer, {"layers.*.up": "column", …}',
        )
    if question.changes:
        size = None if question.micro_batches is None else question.micro_batches[0]
        report = changes_to_fit(
            model,
            example,
            system=question.system,
            optimizer=optimizer,
            micro_batch=size,
            options=_options(question),
            progress=progress,
        )
        changes = report.fit_changes
        return FitAnswer(text=changes.text(), code="", content=json.dumps(changes.to_json()))
    found = fit(
        model,
        example,
        system=question.system,
        batch=question.batch,
        optimizer=optimizer,
        micro_batches=question.micro_batches,
        io_tiles=question.io_tiles,
        tensor_parallel=split,
        group_sizes=question.group_sizes,
        options=_options(question),
        check=question.check,
        progress=progress,
    )
    return FitAnswer(text=fitted_text(found.fitted), code=found.code(), content=json.dumps(found.to_json()))


def _options(question: FitQuestion) -> Options:
    import torch

    from abele.frontends.poptorch import Options

    options = Options()
    if question.half_partials:
        options.Precision.setPartialsType(torch.half)
    return options


def answers_by_length(question: FitQuestion, lengths: Sequence[int], progress: Progress) -> dict[int, FitAnswer]:
    """An answer for each sequence length; where nothing fits, it says so.

    Raises:
        FittingError: Nothing fits for any of them.
    """
    found: dict[int, FitAnswer] = {}
    errors: list[FittingError] = []
    for length in dict.fromkeys(lengths):
        try:
            found[length] = answer(replace(question, sequence=length), progress)
        except FittingError as error:
            errors.append(error)
            found[length] = FitAnswer(text=str(error), code="", content=json.dumps({"error": str(error)}))
    if len(errors) == len(found):
        raise errors[0]
    return found


def lengths_text(answers: dict[int, FitAnswer]) -> str:
    """A line for each sequence length: its smallest machine, and the fastest plan."""
    from abele.fitting import spread_words
    from abele.report.text import aligned_lines

    rows = [("sequence", "smallest", "IPUs x replicas", "micro-batch", "samples/s", "tokens/s")]
    for length, said in answers.items():
        best = next(iter(said.data.get("ranking", ())), None)
        if best is None:
            rows.append((f"{length:,}", "none", "nothing fits", "", "", ""))
            continue
        rate = best["samples_per_second"]
        spread = spread_words(best["ipus_per_replica"], best["replicas"], best["replicas_per_model"])
        smallest = f"{said.data['smallest_ipus']:,}"
        rows.append(
            (f"{length:,}", smallest, spread, f"{best['micro_batch']:,}", f"{rate:,.0f}", f"{rate * length:,.0f}")
        )
    return "\n".join(aligned_lines(rows, ">>>>>>"))
