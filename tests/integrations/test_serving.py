"""The state of an output in a server."""

from __future__ import annotations

from typing import Any

import pytest

from constrain.engine import CompiledGrammar, allocate_bitmask, compile_json_schema, compile_regex
from constrain.engine.bitmask import unpacked
from constrain.errors import ResourceLimit
from constrain.integrations.serving import BitmaskArray, OutputState
from constrain.testing import byte_vocabulary

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def digits() -> CompiledGrammar:
    return compile_regex("[0-9]+!", byte_vocabulary())


class Counting:
    """Stands for a matcher, and counts the calls of a method."""

    def __init__(self, matcher: Any, name: str) -> None:
        self.matcher, self.name, self.count = matcher, name, 0

    def __getattr__(self, name: str) -> Any:
        self.count += name == self.name
        return getattr(self.matcher, name)


def test_copies_at_the_start_share_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a matcher and of its clones is freed with the last of them; SGLang keeps the first for ever."""
    state = OutputState(digits(), [ord("x")])
    counting = Counting(state._matcher, "clone")
    monkeypatch.setattr(state, "_matcher", counting)
    copy = state.copy()
    assert counting.count == 0 and copy.accept(ord("1")) and copy.num_tokens == 1 and state.num_tokens == 0
    assert copy.accept(ord("!")) and copy.accept(ord("x")) and copy.is_terminated
    assert state.accept(ord("1")) and state.copy().num_tokens == 1 and counting.count == 1


def test_masks_that_were_prepared_are_found() -> None:
    grammar = compile_json_schema(OBJECT, byte_vocabulary())
    state = OutputState(grammar)
    state.prepare(budget=20)
    built = grammar.counters["masks_built"]
    assert built > 3 and state.num_tokens == 0
    bits = allocate_bitmask(1, grammar.vocabulary.size)
    for number, token in enumerate(b'{"a":0}'):
        state.fill_bitmask(bits, 0, 20 - number)
        assert state.accept(token)
    assert grammar.counters["masks_built"] == built


@pytest.mark.parametrize("budget", [None, 0, 1])
def test_what_cannot_be_prepared_is_told_later(budget: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    state = OutputState(digits())
    state.prepare(budget)
    assert state.error is None

    class Exhausted:
        def clone(self) -> Exhausted:
            return self

        def mask(self, budget: int | None) -> None:
            raise ResourceLimit("max_seconds", 10)

    monkeypatch.setattr(state, "_matcher", Exhausted())
    state.prepare(budget)
    assert state.error is None


def test_a_limit_that_forced_text_reaches_is_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    state = OutputState(digits())

    class Exhausted:
        def forced_tokens(self, limit: int) -> None:
            raise ResourceLimit("max_seconds", 10)

    monkeypatch.setattr(state, "_matcher", Exhausted())
    assert state.forced_tokens() == [] and "max_seconds" in str(state.error)


def test_the_array_of_a_bitmask_is_made_once() -> None:
    made = []

    class Tensor:
        def numpy(self) -> object:
            made.append(object())
            return made[-1]

    array, one, other = BitmaskArray(), Tensor(), Tensor()
    assert [array.of(each) for each in (one, one, other, other)] == [made[0], made[0], made[1], made[1]]


def test_a_defect_of_the_engine_ends_its_output_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of a server must not end with an exception."""
    state = OutputState(digits())
    bits = allocate_bitmask(1, state.grammar.vocabulary.size)

    class Broken:
        def __getattr__(self, name: str) -> Any:
            def fail(*args: Any) -> None:
                raise RuntimeError("a live configuration has no completion")

            return fail

    monkeypatch.setattr(state, "_matcher", Broken())
    state.fill_bitmask(bits, 0, 5)
    assert unpacked(bits).tolist() == list(state.grammar.vocabulary.eos_token_ids)
    assert not state.accept(ord("1")) and state.forced_tokens() == [] and "no completion" in str(state.error)
