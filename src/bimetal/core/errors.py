"""The exception tree: every error a user can see, and the boundary that classifies foreign ones.

    BimetalError
      ConfigError (ValueError)           the run as written cannot work
        UnknownNameError (LookupError)   no such option or catalogue entry; suggests the nearest
      DataError (ValueError)             a record is malformed: file, line, field
      VerifierError (RuntimeError)       the verifier itself broke; never a verdict of "wrong"
      RolloutError (RuntimeError)        the backend failed, timed out, or serves stale weights
      TrainingError (RuntimeError)       the optimizer step cannot go on
        NonFiniteError                   loss or gradient not finite; names the traces
        CheckpointError                  a checkpoint or run folder cannot be read or written

A message says three things: what is wrong, what was found, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable
from contextlib import contextmanager


class BimetalError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(BimetalError, ValueError):
    """The run as written cannot work."""


class UnknownNameError(ConfigError, LookupError):
    """No such option or catalogue entry."""


class DataError(BimetalError, ValueError):
    """A record is malformed; the message names file, line and field."""


class VerifierError(BimetalError, RuntimeError):
    """The verifier itself broke; this never becomes a verdict of "wrong"."""


class RolloutError(BimetalError, RuntimeError):
    """The generation backend failed, timed out, or serves stale weights."""


class TrainingError(BimetalError, RuntimeError):
    """The optimizer step cannot go on."""


class NonFiniteError(TrainingError):
    """A loss or a gradient is not finite; the message names step, term and traces."""


class CheckpointError(TrainingError):
    """A checkpoint or a run folder cannot be read or written."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """An error that names the nearest known name, and lists all of them when none is near."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(choices) or '(none)'}"
    return UnknownNameError(f"unknown {kind} {name!r}; {hint}")


@contextmanager
def boundary(kind: type[BimetalError], what: str) -> Generator[None]:
    """Turn any foreign exception raised inside into ``kind``; our own pass through unchanged.

    Args:
        kind: The class every foreign exception becomes.
        what: The activity, as in "verify math/123"; it opens the message.
    """
    try:
        yield
    except BimetalError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {error}") from error
