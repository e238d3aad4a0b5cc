"""How the micro-batches of one optimizer step become one gradient; a step is handed one of these.

There is one right arithmetic, ``EXACT``. Others exist to prove that a check can fail: see
``bimetal.testing.faults``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from bimetal.core.batch import Batch
from bimetal.data.microbatch import Piece
from bimetal.objectives.compose import Shares, Term

Pieces = Callable[[Sequence[Piece]], Sequence[Piece]]
"""The micro-batches of this rank -> those that run, and which of them count."""

PieceShares = Callable[[Collection[Term], Batch, Shares, int], Shares]
"""(terms, a micro-batch, its part of the step's shares, how many count) -> the shares it is run with."""

Seen = Callable[[Batch], Batch]
"""The step's batch -> what the objective sees of it."""


def _every_piece(pieces: Sequence[Piece]) -> Sequence[Piece]:
    return pieces


def _of_the_whole_step(terms: Collection[Term], rows: Batch, parts: Shares, pieces: int) -> Shares:
    del terms, rows, pieces
    return parts


def _as_collated(batch: Batch) -> Batch:
    return batch


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Every micro-batch counts once, with its shares of the whole step."""

    name: str = "exact"
    pieces: Pieces = _every_piece
    piece_shares: PieceShares = _of_the_whole_step
    seen: Seen = _as_collated


EXACT = Arithmetic()
