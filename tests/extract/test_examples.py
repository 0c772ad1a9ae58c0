"""Examples: quotes in their records stand in their documents."""

from __future__ import annotations

from typing import Any

import pytest

from constrain import Evidence, Quote
from constrain.errors import ArgumentError
from constrain.extract import Target
from constrain.extract.examples import checked_examples


def test_records_have_their_quotes() -> None:
    record = {"quote": "three euros", "value": 3}
    (example,) = checked_examples(Target.of(Evidence[int]), [("He paid three euros.", record)])
    assert example.record == '{"quote": "three euros", "value": 3}'


@pytest.mark.parametrize(
    ("what", "record", "where"),
    [
        (dict[str, Quote], {"a/b": "tree"}, "#/a~1b, 'tree'"),
        (list[Evidence[int]], [{"quote": "hree euros", "value": 3}], "#/0, 'hree euros'"),
    ],
)
def test_quotes_that_do_not_stand_in_the_document_are_refused(what: Any, record: Any, where: str) -> None:
    with pytest.raises(ArgumentError, match=f"examples.0.: the quote at {where}, does not stand in the document"):
        checked_examples(Target.of(what), [("He paid three euros.", record)])
