"""Code: a plan as PopTorch code, ready to be pasted where the model is wrapped."""

from __future__ import annotations

import torch

from abele.fitting import Fitted, Recomputation, Spreading, StatePlace

_NOTHING = 0
"""PopART's ``RecomputationType.NoRecompute``."""


def plan_code(fitted: Fitted, plan: Spreading, model: torch.nn.Module, first: str) -> str:
    """The options and blocks of a plan.

    Args:
        fitted: Plans that were found.
        plan: The plan.
        model: The model.
        first: Module path at which the model's first block begins; empty for the model itself.
    """
    lines = ["from abele import poptorch  # or: import poptorch", ""]
    if plan.stages > 1:
        lines += [*_blocks(fitted, plan, model, first), ""]
    if fitted.training and plan.stages > 1 and plan.recompute == Recomputation.SEGMENTS:
        lines += [*_checkpoints(fitted, plan, model), ""]
    return "\n".join([*lines, *_options(fitted, plan)])


def _options(fitted: Fitted, plan: Spreading) -> list[str]:
    lines = ["opts = poptorch.Options()", f"opts.Abele.system({fitted.space.system.name.partition(':')[0]!r})"]
    lines.append(f"opts.replicationFactor({plan.replicas})")
    if fitted.training:
        lines.append(f"opts.Training.gradientAccumulation({plan.accumulation})")
    else:
        lines.append(f"opts.deviceIterations({plan.accumulation})")
    if plan.stages > 1:
        lines.append("opts.setExecutionStrategy(poptorch.PipelinedExecution(")
        lines += [f'    poptorch.Stage("stage{s}").ipu({plan.ipu_of(s)}),' for s in range(plan.stages)]
        lines.append("))")
        if fitted.training and plan.recompute == Recomputation.NOTHING:
            lines.append(f'opts._Popart.set("autoRecomputation", {_NOTHING})  # all activations are kept')
    if fitted.space.settings.partials == "f16":
        lines.append("opts.Precision.setPartialsType(torch.half)")
    if fitted.space.settings.sync_pattern != "full":
        lines.append("opts.syncPattern(poptorch.SyncPattern.SinglePipeline)")
    if plan.plans_smaller:
        shares = ", ".join(f'"IPU{i}": {share:g}' for i, share in enumerate(plan.proportions) if share is not None)
        lines.append(f"opts.setAvailableMemoryProportion({{{shares}}})")
    if plan.shared_functions:
        lines.append("opts.Abele.sharedFunctions(True)")
    if plan.state != StatePlace.ON_CHIP:
        where = "poptorch.TensorLocationSettings()"
        where += ".useOnChipStorage(False)" if plan.state.is_off_chip else ".useOnChipStorage(True)"
        where += ".useReplicatedTensorSharding(True)" if plan.state.is_sharded else ""
        lines.append(f"opts.TensorLocations.setOptimizerLocation({where})")
    lines.append(
        f"# micro-batches of {plan.micro_batch}: a DataLoader with these options has batch_size={plan.micro_batch}"
    )
    return lines


def _blocks(fitted: Fitted, plan: Spreading, model: torch.nn.Module, first: str) -> list[str]:
    modules = [first, *fitted.modules(plan)[1:]]
    return [
        f'poptorch.BeginBlock({module_expression(model, module)}, "stage{stage}", ipu_id={plan.ipu_of(stage)})'
        for stage, module in enumerate(modules)
    ]


def _checkpoints(fitted: Fitted, plan: Spreading, model: torch.nn.Module) -> list[str]:
    segments = fitted.chains[plan.micro_batch].segments
    inside = [segments[i].module for begin, end in plan.bounds(len(segments))[:-1] for i in range(begin + 1, end)]
    if not inside:
        return []
    lines = ["# What these layers read is kept; the rest of their stages is computed again.", "for layer in ["]
    lines += [f"    {module_expression(model, module)}," for module in inside]
    lines.append("]:")
    lines.append("    layer.register_forward_pre_hook(")
    lines.append("        lambda module, args: (poptorch.recomputationCheckpoint(args[0]), *args[1:])")
    lines.append("    )")
    return lines


def module_expression(model: torch.nn.Module, path: str) -> str:
    """A submodule as an expression, such as ``model.layers[3].attended``.

    Args:
        model: The model.
        path: Names of submodules joined by ``/``; empty for the model itself.
    """
    text, here = "model", model
    for name in path.split("/") if path else ():
        indexed = isinstance(here, (torch.nn.ModuleList, torch.nn.Sequential))
        text += f"[{name}]" if indexed and name.isdigit() else _attribute(name)
        here = here.get_submodule(name)
    return text


def _attribute(name: str) -> str:
    return f".{name}" if name.isidentifier() else f".get_submodule({name!r})"
