"""A learning-curve picture: one line per series, a band for its interval; SVG for pages, PNG for the rest.

Colors are those of Okabe and Ito (2008), told apart with any kind of color vision; markers differ
too, so that the picture can be printed in gray. Needs the extra ``bimetal[plots]``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bimetal.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""One per series, in order; the eighth series starts again with another marker."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
INK, PAPER = "#1a1c1f", "#ffffff"
PIXELS_PER_INCH = 160

STYLE: Any = MappingProxyType(
    {
        "font.family": "sans-serif",
        "font.size": 9.5,
        "svg.fonttype": "none",
        "svg.hashsalt": "bimetal",
        "text.parse_math": False,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "figure.facecolor": PAPER,
        "axes.facecolor": PAPER,
    }
)
"""Settings of matplotlib; text stays text, and equal pictures are equal bytes."""

Drawn = TypeVar("Drawn")

Series = Mapping[str, "Point"]
"""Name -> value, at one x."""


class Point(NamedTuple):
    """A value with its interval; ``None`` where there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What stands around the curves.

    ``marks`` are places on the x axis with a name, such as the start of a stage. ``range`` is the y axis.
    """

    x: str
    y: str
    marks: tuple[tuple[float, str], ...] = ()
    range: tuple[float, float] = (0.0, 1.0)


def curve_svg(rows: Sequence[tuple[float, Series]], labels: Labels) -> str:
    """The picture as an SVG document on white, with text as text; equal rows give equal bytes.

    Raises:
        ConfigError: The extra ``plots`` is not installed.
        DataError: There is nothing to draw.
    """
    return _drawn(rows, labels, _svg)


def curve_svg_for_page(rows: Sequence[tuple[float, Series]], labels: Labels) -> str:
    """The picture as an ``svg`` element for a page: no background, text in the page's own color.

    Series take the page's ``--series-1``, ``--series-2``, ... where it defines them, so that they can
    differ between light and dark. Errors are those of ``curve_svg``.
    """
    text = _drawn(rows, labels, _svg)
    element = text[text.index("<svg") :]
    # Metadata is for files, and a style inside an element would hold for the whole page.
    element = re.sub(r"\s*<(metadata|style)\b.*?</\1>", "", element, flags=re.DOTALL)
    element = element.replace(INK, "currentColor").replace(f"fill: {PAPER}", "fill: none")
    for number, color in enumerate(COLORS, start=1):
        element = element.replace(color, f"var(--series-{number}, {color})")
    width, height = _inches(rows)
    size = f'viewBox="0 0 {width * 72:g} {height * 72:g}" role="img" aria-label="Learning curves"'
    return re.sub(r"<svg [^>]*>", f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
                  'xmlns:xlink="http://www.w3.org/1999/xlink">', element, count=1)  # fmt: skip


def curve_png(rows: Sequence[tuple[float, Series]], labels: Labels) -> bytes:
    """The picture as a PNG file. Errors are those of ``curve_svg``."""
    return _drawn(rows, labels, _png)


def _drawn(rows: Sequence[tuple[float, Series]], labels: Labels, finish: Callable[[Figure], Drawn]) -> Drawn:
    if find_spec("matplotlib") is None:
        raise ConfigError("the picture needs matplotlib; found none; run: pip install 'bimetal[plots]'")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for _, series in rows for name in series))
    if not names:
        raise DataError("there is nothing to draw: no row has a series; evaluate at least once")
    # pyplot would open windows; a figure of our own has no global state.
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_inches(rows), layout="constrained")
        axes = figure.add_subplot()
        for number, name in enumerate(names):
            points = sorted((x, series[name]) for x, series in rows if name in series)
            _add_series(axes, name, points, number=number)
        _dress(axes, labels)
        columns = min(len(names), 3)
        figure.legend(loc="outside upper left", ncols=columns, frameon=False, handlelength=2.2)
        return finish(figure)


def _inches(rows: Sequence[tuple[float, Series]]) -> tuple[float, float]:
    names = len({name for _, series in rows for name in series})
    return 7.2, 3.4 + 0.18 * ((names + 2) // 3)


def _add_series(axes: Axes, name: str, points: Sequence[tuple[float, Point]], *, number: int) -> None:
    color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
    at = [x for x, _ in points]
    axes.plot(
        at,
        [p.value for _, p in points],
        color=color,
        marker=marker,
        markersize=4,
        linewidth=1.7,
        label=name,
        clip_on=False,
        zorder=3,
    )
    banded = [(x, p.low, p.high) for x, p in points if p.low is not None and p.high is not None]
    places, low, high = ([row[n] for row in banded] for n in range(3))
    if len(banded) > 1:
        axes.fill_between(places, low, high, color=color, alpha=0.13, linewidth=0, zorder=2)
    elif banded:
        axes.vlines(places, low, high, color=color, linewidth=1.2, zorder=2)


def _dress(axes: Axes, labels: Labels) -> None:
    axes.set_xlabel(labels.x)
    axes.set_ylabel(labels.y)
    axes.set_ylim(*labels.range)
    axes.margins(x=0.02)
    axes.grid(axis="y", color=INK, alpha=0.14, linewidth=0.7)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for x, name in labels.marks:
        axes.axvline(x, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.55, zorder=1)
        axes.annotate(name, (x, 1.0), xycoords=("data", "axes fraction"), xytext=(4, -4), va="top",
                      textcoords="offset points", fontsize=8.5, alpha=0.8)  # fmt: skip


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PIXELS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()
