"""Write the pictures of the page on low precision: ``python docs/make_low_precision.py [--curves]``.

With ``--curves`` the networks are trained first, which takes minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console

from abele.garden import low_precision
from abele.garden.low_precision import GPT_RATES
from abele.garden.low_precision_training import BRANCHES, MULTIPLIERS, CharacterGpt
from abele.garden.training import DemoSettings
from abele.machine import systems
from abele.poptorch import fp8, unit_scaling

PICTURES = Path(__file__).parent / "pictures"


def errors() -> None:
    """Relative error of a rounded value by its size, of the three narrow formats."""
    generator = torch.Generator().manual_seed(0)
    exponents = np.arange(-26, 19)
    spread = torch.rand(4000, generator=generator) + 1
    made: dict[str, list[float]] = {"F143": [], "F152": [], "float16": []}
    for exponent in exponents:
        x = torch.ldexp(spread, torch.tensor(int(exponent)))
        for name in made:
            if name == "float16":
                back = x.half().float()
            else:
                back = fp8.pow2scale_cast_from_fp8(fp8.pow2scale_cast_to_fp8(x, 0, name), 0, torch.float32)
            made[name].append(float(((back - x) / x).square().mean().sqrt()))
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    for name, style in (("F143", "-"), ("F152", "--"), ("float16", ":")):
        values = np.asarray(made[name])
        axes.plot(exponents, np.where(np.isfinite(values), values, np.nan), style, label=name, linewidth=1.8)
    axes.set(xlabel="exponent of the value, scale 2⁰", ylabel="relative error, root mean square", yscale="log")
    axes.set(ylim=(5e-5, 1.6))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(PICTURES / "f8_errors.png", dpi=150)


def deviations() -> None:
    """Standard deviations in a decoder at its start, plain and unit-scaled."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for scaled, marker in ((False, "o"), (True, "s")):
        torch.manual_seed(0)
        model: torch.nn.Module = CharacterGpt(97, 128, 4, 4, 64)
        if scaled:
            shares = dict.fromkeys(BRANCHES, GPT_RATES.share)
            model = unit_scaling.unit_scale(model, residuals=shares, multipliers=MULTIPLIERS)
        seen: dict[str, tuple[float, float]] = {}

        def watch(name: str, part: torch.nn.Module, seen: dict[str, tuple[float, float]] = seen) -> None:
            def hook(_part: object, _given: object, made: torch.Tensor) -> None:
                made.register_hook(lambda grad: seen.__setitem__(name, (float(made.std()), float(grad.std()))))

            part.register_forward_hook(hook)

        for name, part in model.named_modules():
            if isinstance(part, torch.nn.Linear):
                watch(name.removeprefix("model."), part)
        text = torch.randint(0, 97, (8, 65), generator=torch.Generator().manual_seed(1))
        model(text[:, :-1], text[:, 1:]).backward()
        names = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)]
        values = [seen[name.removeprefix("model.")] for name in names]
        for axes, number, title in zip(panels, (0, 1), ("results", "gradients of results"), strict=True):
            label = "unit-scaled" if scaled else "plain"
            axes.plot([v[number] for v in values], marker + "-", label=label, linewidth=1.4, markersize=4)
            axes.set(title=title, yscale="log", xlabel="linear layer, from the first to the scores")
            axes.axhline(6.1e-5, color="grey", linewidth=0.8, linestyle=":")
            axes.grid(alpha=0.3)
    panels[0].set_ylabel("standard deviation")
    panels[0].text(0, 7e-5, "smallest normal float16", fontsize=8, color="grey")
    panels[1].legend(frameon=False, loc="center right")
    figure.savefig(PICTURES / "unit_scaling.png", dpi=150)


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", action="store_true")
    PICTURES.mkdir(exist_ok=True)
    errors()
    deviations()
    if parser.parse_args().curves:
        settings = DemoSettings(system=systems.get("c600"))
        low_precision.run(settings, Console(stderr=True), picture=PICTURES / "low_precision_curves.png")


if __name__ == "__main__":
    main()
