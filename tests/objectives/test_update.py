"""Gradients as vectors, and rules that answer from them."""

from __future__ import annotations

import pytest
import torch

from bimetal.objectives.update import Gradients, drop_on_conflict, plain


def a_gradient(*values: float) -> Gradients:
    """Over two parameters, the second a scalar."""
    return Gradients({"w": torch.tensor(values[:2], dtype=torch.float32), "b": torch.tensor(values[2])})


class Fixed:
    """Answers every question from a table."""

    def __init__(self, table: dict[tuple[str, ...] | None, Gradients]) -> None:
        self.table = table

    def roles(self) -> tuple[str, ...]:
        return ("policy", "critic")

    def gradients(self, *, terms=None, batch="step", role="policy", through=None, origin=None) -> Gradients:
        if terms is None:
            return self.table[(role,)]
        return self.table[tuple(terms)]


def test_gradients_are_vectors():
    a, b = a_gradient(1.0, 2.0, 2.0), a_gradient(0.0, 1.0, -1.0)
    assert a.dot(b) == 0.0  # 0 + 2 - 2
    assert a.norm() == 3.0  # 1 + 4 + 4
    assert a.plus(b, 2.0).parts["w"].tolist() == [1.0, 4.0]
    assert float(a.plus(b).parts["b"]) == 1.0
    assert a.scaled(-0.5).parts["w"].tolist() == [-0.5, -1.0]


def test_inner_products_are_accumulated_in_float64():
    big = Gradients({"w": torch.tensor([1e4, 1e-4], dtype=torch.float32)})
    # 1e8 + 1e-8 needs 16 digits; float32 has 7.
    one, two = float(torch.tensor(1e4)), float(torch.tensor(1e-4))
    assert big.dot(big) == one * one + two * two


def test_gradients_of_nothing_have_no_length():
    assert Gradients({}).norm() == 0.0


def test_plain_gives_every_role_its_own_gradient():
    table = {("policy",): a_gradient(1.0, 0.0, 0.0), ("critic",): a_gradient(0.0, 2.0, 0.0)}
    found = plain().gradients(Fixed(table))
    assert {role: g.norm() for role, g in found.items()} == {"policy": 1.0, "critic": 2.0}
    assert plain().parameters is None


@pytest.mark.parametrize(("dropped", "expected"), [((-1.0, 0.0, 5.0), 1.0), ((1.0, 0.0, 5.0), 2.0)])
def test_drop_on_conflict_keeps_only_one_term_where_the_angle_is_obtuse(dropped, expected):
    table = {("rl",): a_gradient(1.0, 0.0, 0.0), ("imitation",): a_gradient(*dropped)}
    found = drop_on_conflict(keep="rl", drop="imitation").gradients(Fixed(table))
    assert float(found["policy"].parts["w"][0]) == expected


def test_drop_on_conflict_adds_orthogonal_gradients():
    table = {("rl",): a_gradient(1.0, 0.0, 0.0), ("imitation",): a_gradient(0.0, 1.0, 0.0)}
    found = drop_on_conflict(keep="rl", drop="imitation").gradients(Fixed(table))
    assert found["policy"].parts["w"].tolist() == [1.0, 1.0]
