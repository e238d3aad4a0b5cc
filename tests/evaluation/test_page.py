"""The page: what it says is computed, and what a model wrote stays text."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bimetal.core.errors import ConfigError
from bimetal.core.types import Finish, Split, Status
from bimetal.evaluation.page import Report, html_page, visible
from bimetal.evaluation.result import Example, SuiteResult
from bimetal.evaluation.summary import ProblemResult
from bimetal.rollout.backend import Sampling

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x00\u202e\ud800&amp;'\""


def test_text_of_a_model_is_never_an_element() -> None:
    page = Tags(html_page(report()))
    assert "script" not in page.names
    assert "img" not in page.names
    assert not any(name.startswith("on") for name in page.attributes)
    assert visible(HOSTILE) in page.text


def test_hidden_and_reordering_characters_are_shown_as_marks() -> None:
    text = html_page(report())
    assert "\x00" not in text
    assert "\u202e" not in text
    assert text.encode("utf-8")
    assert visible("a\tb\n\x1b\u200b\u2066") == "a\tb\n\ufffd\ufffd\ufffd"


def test_the_page_forbids_scripts_and_requests() -> None:
    text = html_page(report())
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "").replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_accuracies_differences_and_their_meaning_are_shown() -> None:
    text = Tags(html_page(report())).text
    # 10 of 20: Wilson 29.9 to 70.1; 0 of 20 before: the difference is +50 points.
    assert "50.0 %" in text
    assert "[29.9, 70.1]" in text
    assert "+50.0" in text
    assert "the interval is above zero in 1 of 1 domains" in text
    assert "do not cover the training seed" in text
    assert "bimetal quickstart seed=1" in text


def test_a_single_problem_is_shown_without_an_interval() -> None:
    arms = {
        name: replace(arm, problems={"math": arm.problems["math"][:1]}) for name, arm in report().arms.items()
    }
    text = Tags(html_page(replace(report(), arms=arms))).text
    assert "(no interval: 1 problem; an interval needs 2)" in text


def test_an_arm_without_one_of_the_domains_leaves_a_dash() -> None:
    arms = dict(report().arms)
    arms["after"] = replace(
        arms["after"], problems={**arms["after"].problems, "logic": arms["after"].problems["math"]}
    )
    arms["before"] = replace(
        arms["before"], problems={**arms["before"].problems, "table": arms["before"].problems["math"]}
    )
    assert '<td class="main">-</td>' in html_page(replace(report(), arms=arms))


def test_an_unknown_arm_is_refused() -> None:
    with pytest.raises(ConfigError, match="no evaluation of control; found before, after"):
        html_page(replace(report(), differences=[("after", "control")]))


def test_a_picture_is_placed_with_its_caption() -> None:
    text = html_page(replace(report(), picture="<svg id='curve'></svg>", caption="a < b"))
    assert "<figure><svg id='curve'></svg><figcaption" in text
    assert "a &lt; b" in text


class Tags(HTMLParser):
    """Names of elements and attributes, and the text outside of them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def report() -> Report:
    return Report(
        title="quickstart <1>",
        arms={"before": arm("before", 0), "after": arm("after", 10)},
        main="after",
        differences=[("after", "before")],
        rerun="bimetal quickstart seed=1",
        facts={"model": HOSTILE},
    )


def arm(label: str, solved: int) -> SuiteResult:
    def problem(number: int) -> ProblemResult:
        return ProblemResult(
            prompt_id=f"math/{number}", known=1, unknown=0, correct=int(number < solved),
            lenient=int(number < solved), unparseable=0, truncated=0, tokens=5, votes=(),
        )  # fmt: skip

    example = Example(
        domain="math", prompt_id="math/0", prompt=HOSTILE, reference=HOSTILE, response=HOSTILE,
        status=Status.WRONG, finish=Finish.STOP,
    )  # fmt: skip
    return SuiteResult(
        suite="final", split=Split.TEST, label=label, seed=1, samples=1,
        sampling=Sampling(temperature=0.0, max_tokens=16),
        problems={"math": tuple(problem(n) for n in range(20))}, examples=(example,),
    )  # fmt: skip
