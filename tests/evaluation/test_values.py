"""Which values are the same."""

from __future__ import annotations

from typing import Any

import pytest

from constrain.errors import ArgumentError
from constrain.evaluation import same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        ("12.50", 12.5),
        ("-3", -3),
        (1e22, 10**22),
        ("2024-05-06", "2024-05-06T00:00:00"),
        ("2024-07-14T06:45:00Z", "2024-07-14T08:45:00+02:00"),
        ("09:30", "09:30:00"),
        (" Ada\n Lovelace", "Ada Lovelace"),
        ("re\u0301sume\u0301", "r\u00e9sum\u00e9"),
        (None, None),
    ],
)
def test_the_same(one: Any, other: Any) -> None:
    assert same(one, other) and same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (False, None),
        (0, None),
        ("", None),
        ("0347", "347"),
        ("01", "0100"),
        ("0730", "07:30"),
        ("2024W061", "2024-02-05"),
        ("1e3", 1000),
        ("2024-05-06", "2024-06-05"),
        ("Ada", "ada"),
        ("null", None),
    ],
)
def test_different(one: Any, other: Any) -> None:
    assert not same(one, other) and not same(other, one)


def test_case_may_be_ignored() -> None:
    assert same("STRASSE", "Straße", ignore_case=True)
    assert same("12 Main Street", "12 main street", ignore_case=True)
    assert not same("12 Main Street", "12 main street")
    assert not same("true", True, ignore_case=True)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a value of a record must be JSON, not"):
        same({1, 2}, 1)
