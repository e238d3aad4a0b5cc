"""Final answers out of text: the one extraction policy every rule-based domain shares.

1. Only what follows the last closing tag of a reasoning block counts; a block that was opened and
   not closed leaves nothing to grade.
2. Strict: the last line that is not blank reads exactly ``Answer: X``, and no other line announces
   an answer. This is what earns a reward.
3. Lenient: the last announced answer in any wording, else the last box, else the last ``#### X``,
   else the last text of the domain's own shape. It is reported beside strict and earns nothing,
   so that learning the format and learning the task can be told apart.
4. At most the last 4,000 characters are graded, and nothing with more than 300 digits in a row or
   100 levels of nesting reaches a parser.
"""

from __future__ import annotations

import re
import unicodedata

MAX_CHARACTERS = 4_000
"""How much of the end of a response is graded."""

MAX_DIGITS = 300
"""Longest run of digits a parser may see."""

MAX_NESTING = 100
"""Deepest nesting of brackets a parser may see."""

NUMBER = re.compile(r"[-+\u2212]?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?")
"""Shape of a number inside running text."""

_OPENING, _CLOSING = "<think>", "</think>"
_STRICT = re.compile(r"Answer: (\S.*)")
_ANNOUNCES = re.compile(r"[\s>*_#`~-]*(?:final\s+)?answer[\s*_`]*[:=]", re.IGNORECASE)
_ANNOUNCED = re.compile(r"\banswer\b[\s*_`]*(?:\bis\b|[:=])[\s*_`:=]*(?=([^\n]*))", re.IGNORECASE)
_HASH = re.compile(r"####[ \t]*([^\n]*)")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}")
_LONG_DIGITS = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
_BLANKS = " \t\r"


def answer_region(response: str) -> str | None:
    """What may be graded: the text after the last reasoning block, or ``None`` inside an open one.

    >>> answer_region("<think>7+5</think>Answer: 12"), answer_region("<think>7+5")
    ('Answer: 12', None)
    """
    region = response.rpartition(_CLOSING)[2]
    return None if _OPENING in region else region


def is_bounded(text: str) -> bool:
    """Whether a parser may see the text: its length, digit runs and nesting are within the limits."""
    if len(text) > MAX_CHARACTERS or _LONG_DIGITS.search(text):
        return False
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_NESTING:
            return False
    return True


def strict_answer(region: str) -> str | None:
    r"""X where the last line that is not blank is exactly ``Answer: X`` and no other announces one.

    >>> strict_answer("7+5=12\nAnswer: 12\n"), strict_answer("Answer: 1\nAnswer: 12")
    ('12', None)
    """
    lines = [line for line in region.split("\n") if line.strip(_BLANKS)]
    if not lines:
        return None
    match = _STRICT.fullmatch(lines[-1].rstrip(_BLANKS))
    if match is None or sum(1 for line in lines if _ANNOUNCES.match(line)) != 1:
        return None
    return match[1] if is_bounded(match[1]) else None


def strict_block(region: str) -> str | None:
    r"""All that follows the only line that announces an answer, which starts with ``Answer:``.

    For answers of several lines, such as a grid.

    >>> strict_block("Done.\nAnswer:\n1 2\n3 4\n")
    '1 2\n3 4'
    """
    lines = region.split("\n")
    announcing = [index for index, line in enumerate(lines) if _ANNOUNCES.match(line)]
    if len(announcing) != 1 or not lines[announcing[0]].startswith("Answer:"):
        return None
    block = "\n".join([lines[announcing[0]].removeprefix("Answer:"), *lines[announcing[0] + 1 :]])
    kept = block.strip(_BLANKS + "\n")
    return kept if kept and is_bounded(kept) else None


def lenient_answer(region: str, *, shape: re.Pattern[str]) -> str | None:
    r"""The last announced, boxed or hashed answer, else the last text of the given shape.

    An announced answer that holds exactly one text of the shape is cut down to it.

    >>> lenient_answer("So the **answer is** 12 apples.", shape=NUMBER)
    '12'
    """
    tail = region[-MAX_CHARACTERS:]
    announced = [plain for match in _ANNOUNCED.finditer(tail) if (plain := plain_text(match[1]))]
    found = announced[-1] if announced else last_boxed(tail) or last_hash(tail)
    if found is None:
        shaped = [match[0] for match in shape.finditer(tail)]
        found = shaped[-1] if shaped else None
    if found is None or not is_bounded(found):
        return None
    inner = last_boxed(found) or found
    shaped = [match[0] for match in shape.finditer(inner)]
    return shaped[0] if len(shaped) == 1 else plain_text(inner)


def last_boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}`` whose braces balance, or of ``\boxed 5``.

    >>> last_boxed(r"\boxed{1} so \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    rest = text[start:].partition("box" if text.startswith("\\fbox", start) else "boxed")[2].lstrip(_BLANKS)
    if not rest.startswith("{"):
        word = re.match(r"[^\s${}\\]+", rest)
        return word[0].rstrip(".,;") or None if word else None
    depth = 0
    for index, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:index].strip() or None
    return None


def last_hash(text: str) -> str | None:
    """What follows the last ``####`` on its line, as in GSM8K."""
    found = [match[1].strip() for match in _HASH.finditer(text)]
    return found[-1] or None if found else None


def last_number(text: str) -> str | None:
    """The last number in the text; for evaluation, since it invites guessing when trained on."""
    found = [match[0].rstrip(",") for match in NUMBER.finditer(text[-MAX_CHARACTERS:])]
    return found[-1] if found else None


def plain_text(text: str) -> str:
    r"""The text without emphasis, dollar signs, ``\text{}``, invisible marks and a final full stop.

    >>> plain_text("**\\text{red}**. ")
    'red'
    """
    visible = "".join(c for c in text if unicodedata.category(c) != "Cf")
    bare = _TEXT_COMMAND.sub(r"\1", visible).strip().strip("*_`$ \t").rstrip(".").strip("*_`$ \t")
    return bare.strip()
