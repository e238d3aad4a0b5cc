"""Cutting a step's rows into micro-batches by tokens, and spreading them over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows that go through the model at once.

    A piece that is not ``live`` has share 0 everywhere: it exists so that every rank runs the same number of
    forward passes.
    """

    rows: tuple[int, ...]
    live: bool = True


def cut(
    lengths: Sequence[int], *, tokens: int, ranks: int = 1, groups: Sequence[int] | None = None
) -> list[list[Piece]]:
    """Pieces for every rank, each of at most ``tokens`` padded tokens; a longer row is a piece of its own.

    Args:
        lengths: Tokens of each row.
        tokens: Rows times the longest of them stays at or below this.
        ranks: How many lists to make; all of one length, filled with dead pieces.
        groups: When given, rows of one group stay in one piece, even beyond ``tokens``.
    """
    units = _units(lengths, groups)
    units.sort(key=lambda unit: (-max(lengths[i] for i in unit), unit[0]))
    pieces: list[list[int]] = []
    for unit in units:
        longest = max(lengths[i] for i in (pieces[-1] if pieces else unit))
        if pieces and (len(pieces[-1]) + len(unit)) * longest <= tokens:
            pieces[-1].extend(unit)
        else:
            pieces.append(list(unit))
    return _spread(pieces, lengths, ranks)


def _units(lengths: Sequence[int], groups: Sequence[int] | None) -> list[list[int]]:
    if groups is None:
        return [[i] for i in range(len(lengths))]
    units: dict[int, list[int]] = {}
    for row, group in enumerate(groups):
        units.setdefault(group, []).append(row)
    return list(units.values())


def _spread(pieces: list[list[int]], lengths: Sequence[int], ranks: int) -> list[list[Piece]]:
    loads = [0] * ranks
    lists: list[list[Piece]] = [[] for _ in range(ranks)]
    cost = [sum(lengths[i] for i in piece) for piece in pieces]
    for index in sorted(range(len(pieces)), key=lambda i: (-cost[i], i)):
        rank = min(range(ranks), key=lambda r: (loads[r], r))
        loads[rank] += cost[index]
        lists[rank].append(Piece(rows=tuple(pieces[index])))
    longest = max(len(entry) for entry in lists)
    shortest_row = min(range(len(lengths)), key=lambda i: (lengths[i], i))
    for entry in lists:
        entry.extend(Piece(rows=(shortest_row,), live=False) for _ in range(longest - len(entry)))
    return lists
