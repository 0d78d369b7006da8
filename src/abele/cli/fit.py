"""``abele fit``: the smallest machine that holds a model, and the fastest way to spread it over a machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from abele.cli.output import console, print_json
from abele.errors import FileFormatError, InvalidOptionError, MissingPackageError, nearest

if TYPE_CHECKING:
    import torch

    from abele.frontends.poptorch.fitting import Fit

_Named = tuple["torch.nn.Module", Any, "torch.optim.Optimizer | None"]
"""A model, its example inputs, and how it is trained."""


def fit(
    model: Annotated[
        str,
        typer.Argument(
            help="A known model (bert-large, bert-base, resnet-50, gpt2-medium), or path/to/file.py:function."
        ),
    ],
    system: Annotated[str, typer.Option("--system", help="Preset (abele systems) or description file.")] = "pod16",
    batch: Annotated[int | None, typer.Option("--batch", help="Samples of one update; any number by default.")] = None,
    micro_batch: Annotated[
        str | None, typer.Option("--micro-batch", help="Sizes of the micro-batch to try, such as 2,4,8.")
    ] = None,
    half_partials: Annotated[
        bool, typer.Option("--half-partials", help="Keep partial sums of float16 products in float16.")
    ] = False,
    io_tiles: Annotated[
        int,
        typer.Option("--io-tiles", help="Tiles of each IPU that load and send while the others compute (32 to 192)."),
    ] = 0,
    inference: Annotated[bool, typer.Option("--inference", help="Run the model forward alone.")] = False,
    check: Annotated[int, typer.Option("--check", help="Compile so many of the fastest as a whole.")] = 1,
    code: Annotated[bool, typer.Option("--code/--no-code", help="Print the options of the fastest as code.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to standard error.")] = False,
) -> None:
    """Find the smallest machine that holds a model, and the fastest way to spread it over a machine.

    A function in a file returns the model and the example inputs of one micro-batch, and may return an optimiser too;
    with one the model is trained, else it runs forward alone.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingPackageError(
            "abele fit needs PyTorch, which is not installed", remedy="pip install 'abele[torch]'"
        )
    import torch

    from abele.frontends.poptorch import Options
    from abele.frontends.poptorch.fitting import fit as fit_model
    from abele.frontends.poptorch.fitting.fit import fitting_system

    fitting_system(system)
    sizes = None if micro_batch is None else _numbers(micro_batch)
    options = Options()
    if half_partials:
        options.Precision.setPartialsType(torch.half)
    if io_tiles:
        options.TensorLocations.numIOTiles(io_tiles)
    with _progress() as report:
        report("make the model", 0.0)
        made, example, optimizer = _from_file(model) if ":" in model else _known(model)
        found = fit_model(
            made,
            example,
            system=system,
            batch=batch,
            optimizer=None if inference else optimizer,
            micro_batches=sizes,
            options=options,
            check=check,
            progress=report,
        )
    if json:
        print_json({"model": model, **found.to_json()})
    else:
        show(found, code=code)


def show(found: Fit, *, code: bool) -> None:
    """Print the result for people."""
    from abele.fitting import fitted_text

    out = console()
    out.print(Text(fitted_text(found.fitted)), soft_wrap=True)
    if code:
        out.print(Text(f"\nas PyTorch code:\n\n{found.code()}"), soft_wrap=True)


def _numbers(given: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in given.split(","))
    except ValueError:
        raise InvalidOptionError(f"--micro-batch takes whole numbers separated by commas, got {given!r}") from None


def _known(name: str) -> _Named:
    from abele.garden.models import known_model

    known = known_model(name)
    model = known.make()
    return model, known.arguments(known.micro_batch), known.optimizer(model)


def _from_file(name: str) -> _Named:
    """Result of the function that ``path:function`` names.

    Raises:
        FileFormatError: There is no such file or function, or it returns something else.
    """
    path, _, function = name.rpartition(":")
    module = _loaded(Path(path))
    made = getattr(module, function, None)
    if not callable(made):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        close = nearest(function, names)
        raise FileFormatError(
            f"{path} has no function {function!r}",
            because=f"it has {', '.join(names) or 'none'}",
            remedy=f"did you mean {path}:{close}?" if close else None,
        )
    return _checked(name, made())


def _checked(name: str, returned: Any) -> _Named:
    import torch

    parts = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    if len(parts) not in (2, 3) or not isinstance(parts[0], torch.nn.Module):
        raise FileFormatError(
            f"{name} returned {type(returned).__name__} of {len(parts)}",
            remedy="return the model and the example inputs of one micro-batch, and an optimizer to train it",
        )
    optimizer = parts[2] if len(parts) == 3 else None
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise FileFormatError(f"{name} returned {type(optimizer).__name__} where an optimizer is wanted")
    return parts[0], parts[1], optimizer


def _loaded(path: Path) -> Any:
    if not path.is_file():
        raise FileFormatError(f"there is no file {path}", remedy="abele fit path/to/file.py:function")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileFormatError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Classes of the file say the module that they are from; its neighbours are imported by name.
    sys.modules[path.stem], before = module, list(sys.path)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # Whatever a user's file raises.
        raise FileFormatError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:] = before
    return module


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """Report of progress on standard error, where that is a terminal."""
    out = console(progress_only=True)
    if not out.is_terminal:
        yield lambda _what, _part: None
        return
    with out.status("") as status:
        yield lambda what, part: status.update(f"{what} ({100 * part:.0f} %)" if part else what)
