"""Differences between runs: the first report beside others."""

from __future__ import annotations

from abele.errors import InvalidOptionError
from abele.report.compare import ReportComparison
from abele.report.compare import compare as compared
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer


def _others(opened: Opened) -> Frozen:
    if opened.beside is not None and len(opened.beside) > 1:
        yield {"program": "0", "with": ",".join(other.key for other in opened.beside if other is not opened)}


@question("compare", frozen=_others, rank=1)
def compare(opened: Opened, params: Params) -> Answer:
    """``ReportComparison.to_json()`` of this report and those named in ``with``, in order.

    Raises:
        InvalidOptionError: No others are named, or one is not open.
    """
    keys = params.words("with")
    if opened.beside is None or not keys:
        raise InvalidOptionError("there is no other report to compare with", remedy="abele view A B")
    others = [opened.beside[key] for key in keys]
    program = params.number("program")
    shown = [opened, *others]
    titles = [one.title for one in shown]
    labels = titles if len(set(titles)) == len(titles) else [one.key for one in shown]
    name = " ".join([f"compare {program}", *(f"{other.key}@{other.stamp}" for other in others)])
    return Answer(opened.once(name, lambda: _compared(shown, program, labels).to_json()))


def _compared(shown: list[Opened], program: int, labels: list[str]) -> ReportComparison:
    return compared([one.report for one in shown], program=program, labels=labels)
