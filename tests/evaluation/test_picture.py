"""Learning curves: valid, the same twice, hostile names as text, nothing to draw refused."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bimetal.core.errors import DataError
from bimetal.evaluation.picture import Labels, Point, curve_png, curve_svg, curve_svg_for_page

LABELS = Labels(x="optimizer steps", y="accuracy", marks=((0.0, "sft"), (20.0, "chord")))
ROWS = [
    (0.0, {"lab_table": Point(0.1, 0.05, 0.2), "<b>$x^2$</b>": Point(0.0)}),
    (20.0, {"lab_table": Point(0.5, 0.4, 0.6)}),
    (10.0, {"lab_table": Point(0.3, 0.2, 0.4), "<b>$x^2$</b>": Point(0.2)}),
]


def test_equal_rows_give_equal_bytes() -> None:
    assert curve_svg(ROWS, LABELS) == curve_svg(ROWS, LABELS)
    assert curve_png(ROWS, LABELS) == curve_png(ROWS, LABELS)


def test_the_png_is_one() -> None:
    assert curve_png(ROWS, LABELS)[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("draw", [curve_svg, curve_svg_for_page])
def test_names_stand_in_the_picture_as_written(draw) -> None:
    root = ElementTree.fromstring(draw(ROWS, LABELS))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"lab_table", "<b>$x^2$</b>", "sft", "chord", "optimizer steps", "accuracy"} <= set(texts)


def test_the_page_element_takes_the_pages_colors_and_brings_no_style() -> None:
    element = curve_svg_for_page(ROWS, LABELS)
    assert element.startswith("<svg ")
    assert "var(--series-1, #0072b2)" in element
    assert "currentColor" in element
    tags = {e.tag.rpartition("}")[2] for e in ElementTree.fromstring(element).iter()}
    assert tags.isdisjoint({"style", "metadata", "script", "image", "foreignObject"})


def test_a_series_with_one_interval_is_drawn() -> None:
    assert curve_png([(0.0, {"a": Point(0.5, 0.4, 0.6)})], LABELS)


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(DataError, match="no row has a series"):
        curve_svg([(0.0, {})], LABELS)
