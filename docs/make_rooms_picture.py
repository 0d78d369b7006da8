"""Draw pictures/rooms.svg, the way of a program through the rooms: python docs/make_rooms_picture.py."""

from __future__ import annotations

from pathlib import Path

WIDTH, HEIGHT, LINE = 150, 66, 17
BOXES = {
    "torch": (20, 40, "PyTorch model", "frontends/poptorch", "session"),
    "tile": (20, 150, "tile program", "graph, codelet"),
    "network": (205, 40, "network", "ops, passes", "derivatives"),
    "distribution": (390, 40, "distribution", "pipelines, replicas", "streamed weights"),
    "poplibs": (575, 40, "poplibs", "products, convolutions", "maps, reductions"),
    "graph": (575, 150, "graph", "variables on tiles", "vertices, programs"),
    "compiler": (760, 150, "compiler", "checks, exchange", "memory, cycles"),
    "runtime": (945, 95, "runtime", "native execution", "on all cores"),
    "report": (945, 205, "report", "columns, pictures", "text, file"),
    "machine": (668, 260, "machine", "chips and systems"),
}
"""Left and top of each box, and its lines."""
ARROWS = (
    ("torch", "network"),
    ("network", "distribution"),
    ("distribution", "poplibs"),
    ("poplibs", "graph"),
    ("tile", "graph"),
    ("graph", "compiler"),
    ("compiler", "runtime"),
    ("compiler", "report"),
    ("runtime", "report"),
)
DOTTED = (("machine", "graph"), ("machine", "compiler"))


def box(left: int, top: int, title: str, *lines: str) -> str:
    """A box with a title and smaller lines."""
    middle, first = left + WIDTH // 2, top + HEIGHT // 2 - LINE * len(lines) // 2 + 4
    text = "".join(
        f'<text x="{middle}" y="{first + LINE * (i + 1)}" class="small">{line}</text>' for i, line in enumerate(lines)
    )
    frame = f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
    return f'{frame}<text x="{middle}" y="{first}" class="title">{title}</text>{text}'


def arrow(start: str, end: str, kind: str) -> str:
    """A line from the side of one box to the facing side of another."""
    (a, b), (c, d) = BOXES[start][:2], BOXES[end][:2]
    if abs(a - c) < WIDTH:
        up = b > d
        x1, y1, x2, y2 = a + WIDTH // 2, b + (0 if up else HEIGHT), c + WIDTH // 2, d + (HEIGHT if up else 0)
    else:
        x1, y1, x2, y2 = a + WIDTH, b + HEIGHT // 2, c, d + HEIGHT // 2
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}" marker-end="url(#tip)"/>'


STYLE = (
    "rect{fill:#f4f7f5;stroke:#2f7d57;stroke-width:1.2}text{font-family:sans-serif;text-anchor:middle;fill:#26282c}"
    ".title{font-weight:bold;font-size:14px}.small{font-size:11.5px;fill:#55595f}line{stroke:#55595f;stroke-width:1.3}"
    ".dotted{stroke-dasharray:4 4}"
)
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#55595f"/></marker>'
)


def main() -> None:
    """Write the picture."""
    parts = [arrow(*pair, "plain") for pair in ARROWS] + [arrow(*pair, "dotted") for pair in DOTTED]
    parts += [box(*given) for given in BOXES.values()]
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1115 345" role="img">'
        f"<style>{STYLE}</style><defs>{TIP}</defs>"
        '<rect width="990" height="345" style="fill:#fff;stroke:none"/>' + "\n".join(parts) + "</svg>\n"
    )
    (Path(__file__).parent / "pictures" / "rooms.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
