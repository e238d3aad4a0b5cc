"""Named random streams: known answers, and independence of everything but the name."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.streams import Streams, permutation, stable_hash, uniforms

# printf 's\1\0\0\0\0\0\0\0ai\1\0\0\0\0\0\0\0001' | b2sum -l 128, read as a little-endian number
HASH_OF_A_1 = int.from_bytes(bytes.fromhex("e749c3b327f8f597332a72b301aa9157"), "little")


def test_a_hash_is_the_blake2b_of_its_tagged_parts() -> None:
    assert stable_hash("a", 1) == HASH_OF_A_1


def test_streams_are_the_same_on_every_machine_and_in_every_version() -> None:
    key = Streams(seed=7).key("rollout", "math/17", 2, 3)
    assert key == 0xC59C5516FECD6596B9DE30BE7C7BBFAC
    assert [x.hex() for x in uniforms(key, 3)] == [
        "0x1.9996fc4b03364p-2",
        "0x1.89b13d592f9c5p-1",
        "0x1.1156309b90850p-3",
    ]
    assert permutation(Streams(seed=7).generator("order"), 8) == [3, 0, 1, 2, 4, 6, 7, 5]


def test_another_process_with_another_hash_seed_finds_the_same_stream() -> None:
    program = "from bimetal.core.streams import *; print(Streams(seed=7).key('rollout', 'math/17', 2, 3))"
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p), "PYTHONHASHSEED": "12"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(found.stdout) == 0xC59C5516FECD6596B9DE30BE7C7BBFAC


@given(st.lists(st.text() | st.integers(), max_size=4), st.lists(st.text() | st.integers(), max_size=4))
def test_different_names_are_different_streams(a: list[str | int], b: list[str | int]) -> None:
    # 1 and "1", or ("ab",) and ("a", "b"), are different names.
    same = [(type(x), x) for x in a] == [(type(x), x) for x in b]
    assert (stable_hash(*a) == stable_hash(*b)) == same


def test_a_name_may_hold_lone_surrogates() -> None:
    assert stable_hash("\ud800") != stable_hash("\ud801")


def test_fewer_draws_are_the_beginning_of_more() -> None:
    assert uniforms(5, 3).tolist() == uniforms(5, 10)[:3].tolist()


def test_drawing_from_one_stream_does_not_move_another() -> None:
    streams = Streams(seed=1)
    alone = streams.generator("a").random(4).tolist()
    first, other = streams.generator("a"), streams.generator("b")
    mixed = []
    for _ in range(4):
        other.random(3)
        mixed.append(first.random())
    assert mixed == alone


def test_streams_of_neighboring_names_are_uncorrelated() -> None:
    a, b = (uniforms(Streams(seed=1).key("rollout", member), 10_000) for member in (0, 1))
    # The covariance of independent uniforms has standard deviation 1 / (12 * 100); five of them are 0.0042.
    assert abs(((a - 0.5) * (b - 0.5)).mean()) < 0.0042


@given(st.integers(0, 50), st.integers(0, 100))
def test_a_permutation_holds_every_index_once(count: int, seed: int) -> None:
    assert sorted(permutation(Streams(seed=seed).generator("p"), count)) == list(range(count))
