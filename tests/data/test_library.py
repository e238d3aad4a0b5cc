"""Which demonstration a visit sees, and where a prefix of it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.types import Demonstration, PromptId
from bimetal.data.library import Library, prefix_length, step_ends, step_prefix, token_prefix

A, B = PromptId("a"), PromptId("b")
LIBRARY = Library(
    demonstrations={A: tuple(Demonstration(prompt_id=A, text=text) for text in ("x", "y", "z"))}
)


def test_prompts_have_all_some_or_no_demonstrations():
    assert [demonstration.text for demonstration in LIBRARY.of(A)] == ["x", "y", "z"]
    assert LIBRARY.of(B) == ()
    assert LIBRARY.covered([B, A, B, A]) == (A, A)


def test_visits_take_the_demonstrations_in_turn():
    picked = [LIBRARY.pick(A, visit=visit) for visit in range(5)]
    assert [one.text for one in picked if one] == ["x", "y", "z", "x", "y"]
    second = LIBRARY.pick(A, visit=2, offset=2)
    assert second is not None
    assert second.text == "y"  # (2 + 2) mod 3 = 1
    assert LIBRARY.pick(B, visit=0) is None


@pytest.mark.parametrize(
    ("count", "fraction", "length"),
    # 0.29 * 100 and 0.57 * 100 are just below 29 and 57 in binary; 0.999 of 10 is rounded down.
    [(100, 0.29, 29), (100, 0.57, 57), (10, 0.999, 9), (3, 0.5, 1), (7, 1.0, 7), (7, 0.0, 0), (0, 1.0, 0)],
)
def test_prefixes_are_rounded_down_to_tokens(count: int, fraction: float, length: int):
    assert prefix_length(count, fraction) == length
    assert token_prefix(range(count), fraction) == tuple(range(length))


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_outside_the_unit_interval_is_refused(fraction: float):
    with pytest.raises(ValueError, match="a prefix fraction is in"):
        prefix_length(3, fraction)


def test_lines_end_behind_their_break():
    pieces = ["7+5", "=12", ".\n", "carry", " 1. ", "\n", "\n", "  so", " 42"]
    # Offsets inside the run of blanks after a break are ends too: after piece 3, 6 and 7; 9 is the whole.
    assert step_ends(pieces, "line") == (3, 6, 7, 9)


def test_sentences_end_where_a_blank_follows_the_stop():
    pieces = ["Pi", " is", " 3", ".", "14", ".", " Next", "! ", "(Yes", ".)", " No"]
    assert step_ends(pieces, "sentence") == (6, 8, 10, 11)


def test_a_step_prefix_is_the_longest_run_of_whole_steps_within_the_fraction():
    pieces = ["a", "b\n", "c", "d\n", "e", "f"]

    def cut(fraction: float) -> tuple[int, ...]:
        return step_prefix(range(6), fraction, token_texts=pieces, step="line")

    assert cut(0.2) == ()
    assert cut(0.5) == (0, 1)  # 3 tokens are allowed; the line ends at 2
    assert cut(0.9) == (0, 1, 2, 3)
    assert cut(1.0) == (0, 1, 2, 3, 4, 5)
    with pytest.raises(ValueError, match="got 1 for 2 tokens"):
        step_prefix([1, 2], 0.5, token_texts=["a"], step="line")


@given(st.lists(st.sampled_from(["a", ".", " ", "\n", "b.", ""]), max_size=12), st.floats(0.0, 1.0))
def test_a_step_prefix_is_never_longer_than_the_token_prefix(pieces: list[str], fraction: float):
    ids = tuple(range(len(pieces)))
    for step in ("line", "sentence"):
        prefix = step_prefix(ids, fraction, token_texts=pieces, step=step)
        assert token_prefix(ids, fraction)[: len(prefix)] == prefix
        text = "".join(pieces[: len(prefix)])
        assert not prefix or text == "".join(pieces) or text.rstrip(" \n") != text or text.endswith(".")
