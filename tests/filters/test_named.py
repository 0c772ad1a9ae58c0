"""Filters as text: arguments that a filter does not have, that are given twice, or that are missing."""

from __future__ import annotations

from typing import Any

import pytest

from constrain.errors import PluginError
from constrain.filters import FilterInfo, NamedFilter


def letters(model: Any, tokenizer: Any, characters: str) -> None: ...
def anything(model: Any, tokenizer: Any, **options: Any) -> None: ...


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = {each.__name__: FilterInfo(each.__name__, "p", "p", "1", "(...)", each) for each in (letters, anything)}
    monkeypatch.setattr("constrain.filters.named.find", infos.__getitem__)


def test_an_argument_may_be_given_once() -> None:
    with pytest.raises(PluginError, match="'letters:characters=abc,characters=d' gives an argument twice"):
        NamedFilter.parse("letters:characters=abc,characters=d")


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(PluginError, match=r"'letters' takes \(\.\.\.\): it has no argument 'chars'"):
        NamedFilter.parse("letters:chars=abc")
    with pytest.raises(PluginError, match="no argument 'character'; did you mean 'characters'"):
        NamedFilter.parse("letters:character=abc")
    assert NamedFilter.parse("anything:chars=abc").arguments == {"chars": "abc"}


def test_a_missing_argument_is_named() -> None:
    for text in ("letters", "letters:"):
        with pytest.raises(PluginError, match=f"'{text}' has no value for characters: give letters:characters=VALUE"):
            NamedFilter.parse(text)
    with pytest.raises(PluginError, match="'letters:abc' is not of the form letters:characters=VALUE"):
        NamedFilter.parse("letters:abc")
    assert NamedFilter.parse("anything").arguments == {}
