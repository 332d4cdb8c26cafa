"""Boxes, arrows and lines of text as SVG."""

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree as ET

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_INK = "#0f172a"
_LINE_HEIGHT = 16
_HEAD = 7  # length of an arrow's head


class Style(NamedTuple):
    """Colours of a box."""

    fill: str
    stroke: str


class Point(NamedTuple):
    """A place, in pixels from the left and from the top."""

    x: float
    y: float


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def north(self) -> Point:
        """The middle of the upper edge."""
        return Point(self.left + self.width / 2, self.top)

    @property
    def south(self) -> Point:
        """The middle of the lower edge."""
        return Point(self.left + self.width / 2, self.top + self.height)

    @property
    def west(self) -> Point:
        """The middle of the left edge."""
        return Point(self.left, self.top + self.height / 2)

    @property
    def east(self) -> Point:
        """The middle of the right edge."""
        return Point(self.left + self.width, self.top + self.height / 2)


class Drawing:
    """A picture on a white card, which reads well on a dark page too.

    Args:
        width: In pixels, like every length.
        height: In pixels.
        title: Told to those who cannot see the picture.

    Example:
        >>> drawing = Drawing(100, 50, title="a box")
        >>> drawing.box(Box(10, 10, 80, 30), ["hola"], Style("#fff", "#000"))
        >>> "hola" in drawing.svg()
        True
    """

    def __init__(self, width: int, height: int, *, title: str) -> None:
        self._root = ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {width} {height}",
                "role": "img",
                "font-family": _FONT,
                "font-size": "12",
            },
        )
        self._add("title").text = title
        self.box(Box(0, 0, width, height), [], Style("#ffffff", "#e2e8f0"))

    def box(self, box: Box, lines: Sequence[str], style: Style, *, heading: bool = False) -> None:
        """Draws a box with centred lines of text, the first of which may be a heading."""
        self._add(
            "rect",
            x=box.left + 0.5,
            y=box.top + 0.5,
            width=box.width - 1,
            height=box.height - 1,
            rx=6,
            fill=style.fill,
            stroke=style.stroke,
        )
        first = box.top + (box.height - _LINE_HEIGHT * (len(lines) - 1)) / 2 + 4.5
        for number, line in enumerate(lines):
            place = Point(box.left + box.width / 2, first + number * _LINE_HEIGHT)
            self.text(place, line, bold=heading and number == 0)

    def text(self, place: Point, line: str, *, bold: bool = False, size: float = 0) -> None:
        """Writes a line of text around a place on its baseline."""
        attributes: dict[str, str | float] = {"font-weight": 600} if bold else {}
        if size:
            attributes["font-size"] = size
        element = self._add(
            "text", x=place.x, y=place.y, fill=_INK, **{"text-anchor": "middle"}, **attributes
        )
        element.text = line

    def arrow(self, *points: Point) -> None:
        """Draws lines from point to point and a head at the last, whose line is level or upright."""
        before, end = points[-2:]
        dx, dy = _sign(end.x - before.x), _sign(end.y - before.y)
        base = Point(end.x - dx * _HEAD, end.y - dy * _HEAD)
        line = " L".join(f"{_number(x)} {_number(y)}" for x, y in (*points[:-1], base))
        self._add("path", d=f"M{line}", fill="none", stroke="#64748b")
        wings = (Point(base.x + dy * 4, base.y + dx * 4), Point(base.x - dy * 4, base.y - dx * 4))
        head = " L".join(f"{_number(x)} {_number(y)}" for x, y in (end, *wings))
        self._add("path", d=f"M{head} Z", fill="#64748b")

    def svg(self) -> str:
        """The SVG file's text."""
        ET.indent(self._root)
        return ET.tostring(self._root, encoding="unicode") + "\n"

    def _add(self, tag: str, **attributes: str | float) -> ET.Element:
        values = {
            name: value if isinstance(value, str) else _number(value)
            for name, value in attributes.items()
        }
        return ET.SubElement(self._root, tag, values)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
