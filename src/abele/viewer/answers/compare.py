"""How several runs differ: the first report beside others."""

from __future__ import annotations

from abele.errors import InvalidOptionError
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.opened import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer


def _others(opened: Opened) -> Frozen:
    if opened.beside is not None and len(opened.beside) > 1:
        yield {"with": ",".join(other.key for other in opened.beside if other is not opened)}


@question("compare", frozen=_others, rank=1)
def compare(opened: Opened, params: Params) -> Answer:
    """``Comparison.to_json()`` of this report and those named in ``with``, in order.

    Raises:
        InvalidOptionError: No others are named, or one is not open.
    """
    from abele.report.compare import compare as compared

    keys = params.words("with")
    if opened.beside is None or not keys:
        raise InvalidOptionError("there is no other report to compare with", remedy="abele view A B")
    others = [opened.beside[key] for key in keys]
    name = " ".join(["compare", *(f"{other.key}@{other.stamp}" for other in others)])
    return Answer(opened.once(name, lambda: compared([opened.report, *(o.report for o in others)]).to_json()))
