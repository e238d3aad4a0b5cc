"""One self-contained HTML page about a run: no script, nothing loaded, whatever the answers say.

Answers are text somebody else's model wrote: everything is escaped, what could hide or reorder text
is shown as a replacement mark, and the page forbids itself scripts and requests.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType

from bimetal.core.errors import ConfigError
from bimetal.core.types import Status
from bimetal.evaluation.intervals import Estimate
from bimetal.evaluation.paired import Paired, paired
from bimetal.evaluation.result import Example, SuiteResult
from bimetal.evaluation.summary import Summary, covers_sentence

EXAMPLES_PER_DOMAIN = 1
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
SIGNED = "+.1f"
_NO_TEXT: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a page shows.

    ``arms`` are models by what the page calls them, in the order of the columns; ``main`` is the one the
    page is about. ``differences`` are pairs (of which arm, minus which). ``picture`` is what
    ``curve_svg_for_page`` drew; it goes into the page as it is. ``facts`` are shown below the title.
    """

    title: str
    arms: Mapping[str, SuiteResult]
    main: str
    differences: Sequence[tuple[str, str]]
    rerun: str
    picture: str = ""
    caption: str = ""
    facts: Mapping[str, str] = field(default_factory=lambda: _NO_TEXT)


def html_page(report: Report) -> str:
    """The page as one HTML document.

    Raises:
        ConfigError: ``main`` or ``differences`` name an arm that is not there.
        DataError: The arms were not evaluated on the same problems.
    """
    named = {report.main, *(name for pair in report.differences for name in pair)}
    if not named <= report.arms.keys():
        missing = ", ".join(sorted(named - report.arms.keys()))
        raise ConfigError(f"report: no evaluation of {missing}; found {', '.join(report.arms)}")
    summaries = {name: result.summary() for name, result in report.arms.items()}
    found = [(pair, paired(report.arms[pair[1]], report.arms[pair[0]])) for pair in report.differences]
    style = resources.files("bimetal.evaluation").joinpath("page.css").read_text(encoding="utf-8")
    parts = [
        f"<h1>{_text(report.title)}</h1>",
        *_lead(report, summaries[report.main], found),
        _facts(report.facts),
        "<h2>Accuracy on held-out problems</h2>",
        _accuracies(summaries, report),
        *_differences(found),
        *_figure(report),
        "<h2>Format and length of the answers</h2>",
        "<p>An answer earns its point only in the required format. The lenient reading accepts it in any "
        "wording: where lenient is far above strict, the model knows the answer and not the format.</p>",
        _shapes(summaries[report.main]),
        "<h2>Answers</h2>",
        *_answers(report),
        f"<h2>What the intervals cover</h2><p>{_text(covers_sentence())} Differences are paired: both models "
        "answered the same problems with the same noise.</p>",
        f"<h2>Run it again</h2><pre>{_text(report.rerun)}</pre>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(report.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def visible(text: str) -> str:
    r"""Text in which nothing is hidden or reordered: control and format characters become U+FFFD.

    >>> visible("a\x00\u202eb")
    'a\ufffd\ufffdb'
    """
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\ufffd" for c in text)


def _lead(report: Report, summary: Summary, found: Sequence[tuple[tuple[str, str], Paired]]) -> list[str]:
    lines = [
        f"<strong>{_text(report.main)}</strong> answers {_percent(summary.accuracy)} of the problems, "
        f"on average over {len(summary.domains)} domains {_interval(summary.accuracy)}."
    ]
    for (_, minus), pair in found:
        above = sum(e.is_above_zero for e in pair.domains.values())
        lines.append(
            f"Against {_text(minus)}: {_points(pair.overall)} {_interval(pair.overall, SIGNED)}; "
            f"the interval is above zero in {above} of {len(pair.domains)} domains."
        )
    return [f'<p class="lead">{lines[0]}</p>', *(f"<p>{line}</p>" for line in lines[1:])]


def _facts(facts: Mapping[str, str]) -> str:
    items = "".join(f"<div><dt>{_text(k)}</dt><dd>{_text(v)}</dd></div>" for k, v in facts.items())
    return f'<dl class="facts">{items}</dl>' if items else ""


def _accuracies(summaries: Mapping[str, Summary], report: Report) -> str:
    first = next(iter(summaries.values()))

    def cell(summary: Summary, domain: str) -> str:
        return _cell(summary.domains[domain].accuracy) if domain in summary.domains else "-"

    head = "".join(f"<th{_main(name, report)}>{_text(name)}</th>" for name in summaries)
    rows = [
        f"<tr><th scope='row'>{_text(domain)}<small>{one.n} problems</small></th>"
        + "".join(f"<td{_main(name, report)}>{cell(s, domain)}</td>" for name, s in summaries.items())
        + "</tr>"
        for domain, one in first.domains.items()
    ]
    average = "".join(f"<td{_main(n, report)}>{_cell(s.accuracy)}</td>" for n, s in summaries.items())
    rows.append(f"<tr class='average'><th scope='row'>average</th>{average}</tr>")
    return _table(f"<th>domain</th>{head}", rows)


def _differences(found: Sequence[tuple[tuple[str, str], Paired]]) -> list[str]:
    if not found:
        return []
    head = "".join(f"<th>{_text(of)} minus {_text(minus)}</th>" for (of, minus), _ in found)
    scale = _scale(found)

    def cell(pair: Paired, domain: str) -> str:
        return _difference(pair.domains[domain], scale=scale) if domain in pair.domains else "-"

    rows = [
        f"<tr><th scope='row'>{_text(domain)}</th>"
        + "".join(f"<td>{cell(pair, domain)}</td>" for _, pair in found)
        + "</tr>"
        for domain in found[0][1].domains
    ]
    average = "".join(f"<td>{_difference(p.overall, scale=scale)}</td>" for _, p in found)
    rows.append(f"<tr class='average'><th scope='row'>average</th>{average}</tr>")
    return [
        "<h2>Paired differences</h2>",
        "<p>In percentage points of accuracy, over the same problems. Colored where the interval leaves out "
        "zero, which is the line in the middle.</p>",
        _table(f"<th>domain</th>{head}", rows),
    ]


def _figure(report: Report) -> list[str]:
    if not report.picture:
        return []
    caption = f'<figcaption class="quiet">{_text(report.caption)}</figcaption>' if report.caption else ""
    return ["<h2>Learning curves</h2>", f"<figure>{report.picture}{caption}</figure>"]


def _shapes(summary: Summary) -> str:
    rows = []
    for name, d in summary.domains.items():
        shown = (d.accuracy, d.lenient, d.unparseable, d.truncated, d.unknown)
        length = f"{d.tokens.value:.0f} tokens" if d.tokens.value is not None else "-"
        cells = "".join(f"<td>{_percent(e)}</td>" for e in shown)
        rows.append(f"<tr><th scope='row'>{_text(name)}</th>{cells}<td>{length}</td></tr>")
    titles = ("strict", "lenient", "no answer found", "cut off", "not judged", "mean length")
    return _table("<th>domain</th>" + "".join(f"<th>{t}</th>" for t in titles), rows)


def _answers(report: Report) -> list[str]:
    """One problem per domain: what the first model and the main one wrote."""
    first = next(iter(report.arms))
    shown: dict[str, dict[str, Example]] = {name: {} for name in dict.fromkeys((first, report.main))}
    for name, by_id in shown.items():
        by_id.update({f"{e.domain}/{e.prompt_id}": e for e in report.arms[name].examples})
    blocks: list[str] = []
    taken: dict[str, int] = {}
    for key, example in shown[report.main].items():
        taken[example.domain] = taken.get(example.domain, 0) + 1
        if taken[example.domain] > EXAMPLES_PER_DOMAIN:
            continue
        written = "".join(_written(name, by_id[key]) for name, by_id in shown.items() if key in by_id)
        reference = f"<small>reference: {_text(example.reference)}</small>" if example.reference else ""
        blocks.append(
            f'<div class="answer"><h3>{_text(example.domain)} {reference}</h3>'
            f'<pre class="asked">{_text(example.prompt)}</pre><div class="pair">{written}</div></div>'
        )
    return blocks or ['<p class="quiet">No answers were kept.</p>']


def _written(name: str, example: Example) -> str:
    color = "up" if example.status is Status.CORRECT else "down"
    response = _text(example.response) if example.response else '<span class="quiet">(empty)</span>'
    return (
        f'<div><span class="mark">{_text(name)}: <span class="{color}">{example.status.value}</span></span>'
        f"<pre>{response}</pre></div>"
    )


def _scale(found: Sequence[tuple[tuple[str, str], Paired]]) -> float:
    """The farthest bound from zero, so that all whiskers share one axis that they fill."""
    all_of_them = [e for _, pair in found for e in (*pair.domains.values(), pair.overall)]
    return max(
        (abs(bound) for e in all_of_them for bound in (e.low, e.high) if bound is not None), default=1.0
    )


def _difference(estimate: Estimate, *, scale: float) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return _points(estimate) + f"<small>{_text(estimate.reason)}</small>"
    color = ' class="up"' if estimate.low > 0 else ' class="down"' if estimate.high < 0 else ""

    def line(kind: str, *ends: float) -> str:
        (x1, y1, x2, y2) = ends
        return f'<line class="{kind}" x1="{x1:.2f}" y1="{y1:g}" x2="{x2:.2f}" y2="{y2:g}"/>'

    low, value, high = (50 + 49 * bound / scale for bound in (estimate.low, estimate.value, estimate.high))
    lines = (
        line("zero", 50.0, 0.0, 50.0, 10.0)
        + line("", low, 5.0, high, 5.0)
        + line("at", value, 1.0, value, 9.0)
    )
    return (
        f"<span{color}>{_points(estimate)}<svg class='whisker' viewBox='0 0 100 10' "
        f"preserveAspectRatio='none' aria-hidden='true'>{lines}</svg></span>"
        f"<small>{_interval(estimate, SIGNED)}</small>"
    )


def _cell(estimate: Estimate) -> str:
    return f"{_percent(estimate)}<small>{_interval(estimate)}</small>"


def _percent(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{100 * estimate.value:.1f} %"


def _points(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{100 * estimate.value:+.1f}"


def _interval(estimate: Estimate, shape: str = ".1f") -> str:
    if estimate.low is None or estimate.high is None:
        return f"(no interval: {_text(estimate.reason)})"
    return f"[{100 * estimate.low:{shape}}, {100 * estimate.high:{shape}}]"


def _main(name: str, report: Report) -> str:
    return ' class="main"' if name == report.main else ""


def _table(head: str, rows: Sequence[str]) -> str:
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _text(text: str) -> str:
    return html.escape(visible(text), quote=True)
