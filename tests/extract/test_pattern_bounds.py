"""Which patterns bound the length of strings."""

from __future__ import annotations

import pytest

from constrain.extract.pattern_bounds import bounds_length


@pytest.mark.parametrize(
    "pattern", ["^a$", "^[a-z+*]{1,9}$", r"^\d{3}\*\{2,\}?$", "^a$|^b$", "^(a|b){2}$", "^(?:[0-9]{2}|x)?$", r"^[\]*]$"]
)
def test_whole_strings_of_limited_length(pattern: str) -> None:
    assert bounds_length(pattern)


@pytest.mark.parametrize(
    "pattern", ["a", "^a", "a$", "^a*$", "^a+$", "^a{2,}$", "(?!a)b(?=c)", "^a|b$", r"^a\$", r"^(a|b+)$", ""]
)
def test_strings_that_may_go_on(pattern: str) -> None:
    assert not bounds_length(pattern)
