"""What a method record refuses."""

from __future__ import annotations

import pytest

from bimetal.core.types import Origin
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.compose import Term
from bimetal.objectives.credit import imitation
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Method
from bimetal.objectives.mix import demonstration_only


def test_two_terms_of_one_name_are_refused():
    term = Term("imitation", CrossEntropy(), token_mean())
    credit = imitation({"imitation": {Origin.DEMONSTRATION: 1.0}})
    with pytest.raises(ValueError, match="distinct names"):
        Method(mix=demonstration_only, credit=credit, terms=(term, term))
    assert Method(mix=demonstration_only, credit=credit, terms=(term,)).update.parameters is None
