"""Tests of bimetal.rollout.stopping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bimetal.rollout.stopping import StopStrings


def decode_bytes(ids):
    return bytes(ids).decode("utf-8", "replace")


def first_stop(ids, strings, decode=decode_bytes):
    watcher = StopStrings(strings, decode=decode)
    return next((n for n, i in enumerate(ids, start=1) if watcher.completed_by(i)), None)


def test_a_string_over_several_tokens_is_noticed_at_its_last_one():
    assert first_stop(b"17\nAnswer: 4\n", ["\nAnswer"]) == 9


def test_the_first_of_several_strings_ends_the_answer():
    assert first_stop(b"abcdef", ["ef", "cd"]) == 4


def test_a_string_before_an_unfinished_character_is_noticed():
    # One token holds the end of the stop string and the first byte of a two-byte character.
    pieces = [b"a", b"Z\xc3", b"\xa9"]
    assert (
        first_stop([0, 1, 2], ["aZ"], lambda ids: b"".join(pieces[i] for i in ids).decode("utf-8", "replace"))
        == 2
    )


def test_a_character_over_four_tokens_is_noticed_when_it_is_whole():
    assert first_stop("x\U0001f600y".encode(), ["\U0001f600"]) == 5


def test_special_tokens_without_text_do_not_break_a_string():
    texts = {0: "", 1: "st", 2: "op"}
    assert first_stop([1, 0, 0, 2], ["stop"], lambda ids: "".join(texts[i] for i in ids)) == 4


def test_an_empty_stop_string_never_stops():
    assert first_stop(b"abc", [""]) is None


@given(
    text=st.text(alphabet="ab\u00e9\u4e2d\U0001f600", max_size=30),
    stop=st.text(alphabet="ab\u00e9", min_size=1, max_size=4),
)
def test_watching_equals_decoding_everything_at_every_token(text, stop):
    ids = text.encode()
    whole = next((n for n in range(1, len(ids) + 1) if stop in decode_bytes(ids[:n])), None)
    assert first_stop(ids, [stop]) == whole


@given(ids=st.lists(st.integers(0, 255), max_size=40))
def test_bytes_that_are_no_text_are_survived(ids):
    first_stop(ids, ["ab"])
