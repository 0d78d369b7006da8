"""Adapters of low rank: a layer's weight stays, and a product of two narrow matrices is added to what it does.

A layer of 576 × 576 weights with an adapter of rank 8 trains 2 · 8 · 576 = 9,216 numbers in place of 331,776. The
second matrix starts at zero, so that the model is at first what it was. Weights below may be quantised.

Source: LoRA (arXiv:2106.09685): y = W x + (alpha / rank) · B A x.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from abele import poptorch
from abele.errors import FileFormatError, InvalidOptionError, nearest
from abele.weights import open_weights, write_safetensors

Below = nn.Linear | poptorch.QuantisedLinear
FILE, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
"""Files of a folder with adapters. Source: those of the package ``peft``."""
_PREFIX = "base_model.model."


class LoraLinear(nn.Module):
    """A linear layer with an adapter.

    Args:
        base: The layer below; it is not trained.
        rank: Columns of the narrow matrices.
        alpha: Factor of the adapter, over ``rank``.
    """

    def __init__(self, base: Below, rank: int, alpha: float) -> None:
        super().__init__()
        self.base, self.rank, self.alpha = base.requires_grad_(False), rank, alpha
        dtype = base.weight.dtype if isinstance(base, nn.Linear) else torch.float32
        self.lora_A = nn.Linear(base.in_features, rank, bias=False, dtype=dtype)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False, dtype=dtype)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of what the layer below and the adapter make of x."""
        out: torch.Tensor = self.base(x) + self.lora_B(self.lora_A(x)) * (self.alpha / self.rank)
        return out

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain layer that does the same; quantised weights become numbers."""
        base = self.base
        weight = base.weight if isinstance(base, nn.Linear) else base.dequantised()
        whole = weight.float() + self.lora_B.weight.float() @ self.lora_A.weight.float() * (self.alpha / self.rank)
        made = nn.Linear(base.in_features, base.out_features, bias=base.bias is not None, dtype=weight.dtype)
        made.weight = nn.Parameter(whole.to(weight.dtype))
        if base.bias is not None:
            made.bias = nn.Parameter(base.bias.detach().clone())
        return made


def add_lora(
    model: nn.Module, *, rank: int = 8, alpha: float = 16.0, targets: Sequence[str] = ("query", "value")
) -> list[str]:
    """Adapters on layers of a model, which trains nothing else from then on; the names of these layers.

    Args:
        model: The model, changed in place.
        rank: Columns of the narrow matrices.
        alpha: Factor of the adapters, over ``rank``.
        targets: Last parts of the layers' names.

    Raises:
        InvalidOptionError: A rank below one, no targets, or one that no linear layer is called.
    """
    if rank < 1:
        raise InvalidOptionError(f"adapters of rank {rank}", remedy="1 or more")
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, Below)}
    known = {name.rpartition(".")[2] for name in layers}
    wrong = next((target for target in targets if target not in known), None)
    if wrong is not None or not targets:
        close = nearest(str(wrong), known)
        raise InvalidOptionError(
            f"no linear layer is called {wrong!r}" if targets else "adapters on no layers",
            remedy=f"did you mean {close!r}?" if close else f"one of {', '.join(sorted(known))}",
        )
    model.requires_grad_(False)
    chosen = [name for name in layers if name.rpartition(".")[2] in targets]
    for name in chosen:
        model.set_submodule(name, LoraLinear(layers[name], rank, alpha))
    return chosen


def _adapters(model: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    return ((name, layer) for name, layer in list(model.named_modules()) if isinstance(layer, LoraLinear))


def merge_lora(model: nn.Module) -> nn.Module:
    """The model with its adapters in its weights, in place; all of it can be trained again."""
    for name, layer in _adapters(model):
        model.set_submodule(name, layer.merged())
    return model.requires_grad_(True)


def save_lora(model: nn.Module, folder: str | Path) -> None:
    """A folder with the adapters of a model, named as ``peft`` names them, and their settings.

    Raises:
        InvalidOptionError: The model has no adapters.
    """
    found = dict(_adapters(model))
    if not found:
        raise InvalidOptionError("the model has no adapters", remedy="add_lora")
    weights = {
        f"{_PREFIX}{name}.{part}.weight": layer.get_parameter(f"{part}.weight").detach().float().cpu().numpy()
        for name, layer in found.items()
        for part in ("lora_A", "lora_B")
    }
    write_safetensors(Path(folder) / FILE, weights, {"format": "pt"})
    first = next(iter(found.values()))
    targets = sorted({name.rpartition(".")[2] for name in found})
    told = {"peft_type": "LORA", "r": first.rank, "lora_alpha": first.alpha, "target_modules": targets}
    (Path(folder) / SETTINGS).write_text(json.dumps(told, indent=2))


@torch.no_grad()
def load_lora(model: nn.Module, folder: str | Path) -> list[str]:
    """Adapters of a folder put on a model; the names of their layers.

    Raises:
        FileFormatError: The files are damaged, or their adapters are not those of the model's layers.
        InvalidOptionError: Settings that no adapter has.
    """
    settings = Path(folder) / SETTINGS
    try:
        told = json.loads(settings.read_text())
        rank, alpha, targets = int(told["r"]), float(told["lora_alpha"]), list(told["target_modules"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{settings}: the settings of adapters cannot be read", because=str(error)) from error
    file = open_weights(Path(folder) / FILE)
    names = add_lora(model, rank=rank, alpha=alpha, targets=targets)
    wanted = {f"{_PREFIX}{name}.{part}.weight": (name, part) for name in names for part in ("lora_A", "lora_B")}
    if set(wanted) != set(file):
        odd = sorted(set(wanted) ^ set(file))[0]
        raise FileFormatError(f"{file.path}: the adapters are those of another model, as {odd!r} shows")
    for there, (name, part) in wanted.items():
        parameter = model.get_parameter(f"{name}.{part}.weight")
        if file[there].shape != tuple(parameter.shape):
            raise FileFormatError(f"{file.path}: {there!r} is {file[there].shape}, not {tuple(parameter.shape)}")
        parameter.copy_(torch.from_numpy(file[there].read()))
    return names
