"""Advice to the owner of a PyTorch model that does not fit on the tiles, in PopTorch's words."""

from __future__ import annotations

from abele.session import Advice


def words(advice: Advice, *, training: bool) -> list[str]:
    """Remedies for a lack of memory, as lines of a PyTorch program.

    Args:
        advice: The remedies that would help.
        training: True if the model is trained.
    """
    found = {}
    if advice.halve:
        found["halve"] = "half precision: model.half() and inputs in torch.float16"
    location = "options.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings()"
    if advice.share_state:
        found["share_state"] = (
            f"{location}.useReplicatedTensorSharding(True)): replicas share the state of the optimiser"
        )
    if advice.recompute:
        found["recompute"] = "options.Abele.recompute(): cheap activations are computed again, not kept"
    if advice.state_off_chip:
        found["state_off_chip"] = f"{location}.useOnChipStorage(False)): the state of the optimiser in streaming memory"
    if advice.partials:
        found["partials"] = "options.Precision.setPartialsType(torch.half): partial sums of products in half precision"
    if advice.batch is not None:
        more = "Training.gradientAccumulation" if training else "deviceIterations"
        found["batch"] = (
            f"a smaller micro-batch than {advice.batch}, with options.{more}({advice.micro_batches}) for the same call"
        )
    if advice.proportion is not None:
        found["proportion"] = (
            f'options.setAvailableMemoryProportion({{"IPU0": {advice.proportion:g}}}) instead of '
            f"{advice.proportion_now:g}"
        )
    if advice.machine is not None:
        found["machine"] = f"a machine with more memory on an IPU: options.system({advice.machine!r})"
    return advice.ordered(found, "options.Abele.allowOutOfMemory() for a report of the program as it is")
