"""The exception tree: drawn as it is, survives pickling, and boundaries classify."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from bimetal.core import errors
from bimetal.core.errors import (
    BimetalError,
    ConfigError,
    DataError,
    UnknownNameError,
    VerifierError,
    boundary,
    unknown_name,
)

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, BimetalError)]


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    parents: list[str] = []
    drawn: dict[str, tuple[str, str]] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ( *)(\w*Error)(?: \((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 2
            parents[depth:] = [match[2]]
            drawn[match[2]] = (parents[depth - 1] if depth else "Exception", match[3] or "")
    found = {
        c.__name__: (c.__bases__[0].__name__, c.__bases__[1].__name__ if len(c.__bases__) > 1 else "")
        for c in CLASSES
    }
    assert drawn == found
    assert len(drawn) == 9


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_survives_pickling_with_its_message(kind: type[BimetalError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what, found, do")))
    assert type(copy) is kind and str(copy) == "what, found, do"


def test_a_boundary_turns_a_foreign_exception_into_ours_and_keeps_its_cause() -> None:
    message = "verify math/123: KeyError: 'x'"
    with pytest.raises(VerifierError, match=message) as caught, boundary(VerifierError, "verify math/123"):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_boundary_lets_our_errors_and_interrupts_through() -> None:
    with pytest.raises(DataError, match=r"^mine$"), boundary(VerifierError, "verify"):
        raise DataError("mine")
    with pytest.raises(KeyboardInterrupt), boundary(VerifierError, "verify"):
        raise KeyboardInterrupt


def test_a_boundary_without_an_exception_does_nothing() -> None:
    with boundary(ConfigError, "read"):
        value = 3
    assert value == 3


def test_an_unknown_name_suggests_the_nearest() -> None:
    error = unknown_name("method", "grpoo", ["grpo", "sft"])
    assert isinstance(error, UnknownNameError) and isinstance(error, LookupError | ValueError)
    assert str(error) == "unknown method 'grpoo'; did you mean 'grpo'?"


def test_an_unknown_name_far_from_all_lists_them_sorted() -> None:
    assert (
        str(unknown_name("method", "zzz", ["sft", "grpo"]))
        == "unknown method 'zzz'; choose one of: grpo, sft"
    )
    assert str(unknown_name("method", "zzz", [])) == "unknown method 'zzz'; choose one of: (none)"
