"""Parts of a comparison of reports, and its JSON form.

``ReportComparison.to_json()`` gives plain mappings, lists, strings, numbers, booleans and null:

``format``, ``version``
    ``"abele-comparison"`` and 1.
``reports``
    ``[{name, label, system, created, program}]`` in the order given; the first is what others are compared with. Labels
    are short and differ from each other.
``figures``
    ``[{name, title, unit, better, values: [n], differences: [n], proportions: [n]}]``: headline figures. ``better`` is
    ``less``, ``more`` or ``""``. A value is null where a report does not have it; differences and proportions are
    against the first report (the first entries are 0; null where one of the two is lacking, proportions also where the
    first is 0).
``tables``
    ``{ops, steps, variables, memory}``: each ``{columns: [{name, unit, better}], keys: [str], more: n, rows: [{key:
    {...}, rows: [row or -1], status, values: {column: [n]}}]}``. ``rows`` are the rows in each report's own table, -1
    where it has none; ``status`` is ``added``, ``removed``, ``changed`` or ``same`` (against the first report, over
    all others); rows are sorted by the largest absolute difference of the first column. ``more`` is how many rows were
    left out.
``first_change``
    ``[{report, step: [row, row], title, what, where}]``, one entry or null for each report, null for the first: the
    first step in program order that differs from the first report's, and in what.
``insights``
    ``[{kind, report, title, reason, where: {file, line}, ops: [row, row], cost: {before, after, difference,
    proportion, unit}}]``: regressions and gains in words, worst first; ``kind`` is ``regression`` or ``gain``.
``notes``
    What makes the reports hard to compare: other systems, other programs, assumed figures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from abele.report.insights.model import SourceLine

STATUSES = ("same", "changed", "added", "removed")


@dataclass(frozen=True)
class ComparedReport:
    """One of the reports.

    Attributes:
        name: The program's name.
        label: A short name that no other of them has.
        system: The machine.
        created: Time at which the report was made.
        program: Name of the program that is compared.
    """

    name: str
    label: str
    system: str
    created: str
    program: str


@dataclass(frozen=True)
class HeadlineFigure:
    """A headline figure of each report.

    Attributes:
        name: Key.
        title: Meaning of the figure.
        unit: ``cycles``, ``bytes``, ``seconds``, ``joules``, ``proportion``, ``samples/s`` or ``count``.
        better: ``less``, ``more`` or empty.
        values: One for each report, None where it has none.
    """

    name: str
    title: str
    unit: str
    better: str
    values: tuple[float | None, ...]

    @property
    def differences(self) -> tuple[float | None, ...]:
        """Against the first report."""
        first = self.values[0]
        return tuple(None if first is None or v is None else v - first for v in self.values)

    @property
    def proportions(self) -> tuple[float | None, ...]:
        """Differences as part of the first report's figure; None where that is 0."""
        first = self.values[0]
        return tuple(None if d is None or not first else d / first for d in self.differences)

    def to_json(self) -> dict[str, Any]:
        """The figure as plain data."""
        return asdict(self) | {
            "values": list(self.values),
            "differences": list(self.differences),
            "proportions": list(self.proportions),
        }


@dataclass(frozen=True)
class ComparedColumn:
    """A column of a compared table.

    Attributes:
        name: Name of the column.
        unit: As of figures.
        better: ``less``, ``more`` or empty.
    """

    name: str
    unit: str
    better: str = "less"


@dataclass(frozen=True)
class ComparedRow:
    """A row of a table in each of the reports.

    Attributes:
        key: Key that it was matched by: name, path, kind; and its number among rows of the same key.
        rows: Its row in each report's table, -1 where there is none.
        status: One of ``STATUSES``.
        values: For each column, one value for each report, None where there is no row.
    """

    key: dict[str, str | int]
    rows: tuple[int, ...]
    status: str
    values: dict[str, tuple[float | None, ...]]

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "key": dict(self.key),
            "rows": list(self.rows),
            "status": self.status,
            "values": {name: list(each) for name, each in self.values.items()},
        }


@dataclass(frozen=True)
class ComparedTable:
    """Rows of a table, matched over the reports; those that changed most come first.

    Attributes:
        keys: Columns that rows are matched by.
        columns: Columns that are compared.
        rows: The rows.
        more: Rows that were left out.
    """

    keys: tuple[str, ...]
    columns: tuple[ComparedColumn, ...]
    rows: tuple[ComparedRow, ...]
    more: int = 0

    def to_json(self) -> dict[str, Any]:
        """The table as plain data."""
        return {
            "keys": list(self.keys),
            "columns": [asdict(column) for column in self.columns],
            "rows": [row.to_json() for row in self.rows],
            "more": self.more,
        }


@dataclass(frozen=True)
class FirstChange:
    """The first step in program order in which a report differs from the first one.

    Attributes:
        report: Number of the report.
        step: Row of the step in the first report and in that one, -1 where it has none.
        title: Name of the step.
        what: Difference, in words.
        where: The user's line, or None.
    """

    report: int
    step: tuple[int, int]
    title: str
    what: str
    where: SourceLine | None = None


@dataclass(frozen=True)
class CostChange:
    """A regression or gain in words.

    Attributes:
        kind: ``regression`` or ``gain``.
        report: Number of the report, compared with the first.
        title: Name of the change.
        reason: Amount of the change, and its parts.
        before: The figure in the first report.
        after: The figure in that report.
        unit: ``cycles`` or ``bytes``.
        where: The user's line in that report, or None.
        ops: Row of the operation in the first report and in that one, -1 where it has none.
    """

    kind: str
    report: int
    title: str
    reason: str
    before: float
    after: float
    unit: str = "cycles"
    where: SourceLine | None = None
    ops: tuple[int, int] = (-1, -1)

    @property
    def difference(self) -> float:
        """After less before."""
        return self.after - self.before

    def to_json(self) -> dict[str, Any]:
        """The change as plain data."""
        return {
            "kind": self.kind,
            "report": self.report,
            "title": self.title,
            "reason": self.reason,
            "where": None if self.where is None else asdict(self.where),
            "ops": list(self.ops),
            "cost": {
                "before": self.before,
                "after": self.after,
                "difference": self.difference,
                "proportion": self.difference / self.before if self.before else None,
                "unit": self.unit,
            },
        }


@dataclass(frozen=True)
class ReportComparison:
    """Two to eight reports beside each other.

    Attributes:
        reports: The reports; the first is what others are compared with.
        figures: Headline figures.
        tables: ``ops``, ``steps``, ``variables`` and ``memory``.
        first_change: First difference of each report after the first, or None.
        insights: Regressions and gains, worst first.
        notes: Reasons for which the reports are hard to compare.
    """

    reports: tuple[ComparedReport, ...]
    figures: tuple[HeadlineFigure, ...]
    tables: dict[str, ComparedTable] = field(default_factory=dict)
    first_change: tuple[FirstChange | None, ...] = ()
    insights: tuple[CostChange, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All as plain data; keys as the module says."""
        return {
            "format": "abele-comparison",
            "version": 1,
            "reports": [asdict(report) for report in self.reports],
            "figures": [figure.to_json() for figure in self.figures],
            "tables": {name: table.to_json() for name, table in self.tables.items()},
            "first_change": [None if c is None else asdict(c) | {"step": list(c.step)} for c in self.first_change],
            "insights": [change.to_json() for change in self.insights],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Page of text: headline figures, the first change, regressions and gains."""
        from abele.report.compare.text import comparison_text

        return comparison_text(self)

    def __str__(self) -> str:
        return self.text()
