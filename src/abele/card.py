"""Cards: what objects show of themselves in a notebook, HTML that is complete in itself and runs no script.

Colours are those of the page around it, made fainter, so that a card can be read on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from abele.words import shortened, visible

_LONGEST = 400
"""Characters of a text that are shown at most."""
_OUTER = "font:13px/1.45 system-ui,sans-serif;display:inline-block;max-width:100%;overflow-x:auto"
_TITLE = "font-weight:600;padding:2px 0 4px"
_TABLE = "border-collapse:collapse;margin:2px 0 8px;font:inherit"
_CELL = "padding:1px 14px 1px 0;border:0;background:none;color:inherit;vertical-align:top"
_RULE = ";border-bottom:1px solid rgba(128,128,128,.45)"
_DIM = ";opacity:.65;font-weight:400"
_BAR = "width:360px;max-width:100%;height:12px;display:flex;background:rgba(128,128,128,.18);margin:2px 0 3px"


def text(value: object) -> str:
    """A value as HTML text: escaped, without control characters, cut where it is very long."""
    return escape(visible(shortened(str(value), _LONGEST)))


def card(title: str, facts: Iterable[tuple[str, object]], *parts: str) -> str:
    """A titled list of facts with parts below it.

    Args:
        title: The heading.
        facts: Labels and what stands beside them.
        parts: HTML made by :func:`table` and :func:`shares`.
    """
    rows = "".join(
        f'<tr><th style="{_CELL}{_DIM};text-align:left;white-space:nowrap">{text(label)}</th>'
        f'<td style="{_CELL};text-align:left">{text(value)}</td></tr>'
        for label, value in facts
    )
    head = f'<div style="{_TITLE}">{text(title)}</div>'
    return f'<div style="{_OUTER}">{head}<table style="{_TABLE}"><tbody>{rows}</tbody></table>{"".join(parts)}</div>'


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> str:
    """A table.

    Args:
        headings: One for each column.
        rows: What stands in the columns.
        right: Numbers of the columns that are set to the right.
    """
    sides = ["right" if i in right else "left" for i in range(len(headings))]
    head = "".join(
        f'<th style="{_CELL}{_DIM}{_RULE};text-align:{s}">{text(h)}</th>' for h, s in zip(headings, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL};text-align:{s}">{text(v)}</td>' for v, s in zip(row, sides, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def shares(parts: Iterable[tuple[str, float, str]]) -> str:
    """A bar cut into shares, and what each stands for.

    Args:
        parts: Label, proportion from 0 to 1, and colour as ``#rrggbb``.
    """
    shown = [(label, min(max(share, 0.0), 1.0), colour) for label, share, colour in parts if share > 0]
    pieces = "".join(f'<div style="width:{share:.2%};background:{colour}"></div>' for _, share, colour in shown)
    key = "".join(
        f'<span style="white-space:nowrap;margin-right:14px"><span style="display:inline-block;width:9px;height:9px;'
        f'background:{colour}"></span> {text(label)} {share:.1%}</span>'
        for label, share, colour in shown
    )
    return f'<div style="{_BAR}">{pieces}</div><div style="margin-bottom:8px">{key}</div>' if shown else ""
