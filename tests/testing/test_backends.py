"""The conformance kit: the engine's own state of an output conforms, and back ends with mistakes do not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from constrain.engine import allocate_bitmask
from constrain.engine.bitmask import unpacked
from constrain.errors import ArgumentError, BitmaskError
from constrain.integrations.serving import ConstraintKind, OutputState, compile_constraint
from constrain.testing import backends, small_vocabulary


class StateOutput(backends.Output):
    """An :class:`OutputState`, as a server would drive it."""

    def __init__(self, state: OutputState, max_tokens: int | None) -> None:
        self.state, self.max_tokens = state, max_tokens

    def allowed(self) -> backends.Tokens:
        bits = allocate_bitmask(1, self.state.grammar.vocabulary.size)
        left = None if self.max_tokens is None else self.max_tokens - self.state.num_tokens
        self.state.fill_bitmask(bits, 0, left)
        return unpacked(bits)

    def accept(self, token: int) -> bool:
        return self.state.accept(token)

    def is_terminated(self) -> bool:
        return self.state.is_terminated

    def rollback(self, count: int) -> None:
        self.state.rollback(count)

    def valid_prefix(self, tokens: list[int]) -> list[int]:
        return self.state.valid_prefix(tokens)

    def forced_tokens(self) -> list[int]:
        return self.state.forced_tokens()

    def copy(self) -> backends.Output:
        return StateOutput(self.state.copy(), self.max_tokens)


class StateBackend(backends.Backend):
    abilities = ("refuse", "end", "budget", "rollback", "drafts", "forced", "copy")

    def __init__(self) -> None:
        self.vocabulary = small_vocabulary()

    def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> backends.Output:
        return StateOutput(OutputState(compile_constraint(kind, text, self.vocabulary)), max_tokens)


@pytest.mark.parametrize("check", [check for check, _ in backends.CHECKS])
def test_the_state_of_an_output_conforms(check: backends.Check) -> None:
    check(StateBackend())


def broken(**methods: object) -> backends.Backend:
    """A back end whose outputs have some methods replaced."""
    output = type("BrokenOutput", (StateOutput,), methods)

    class Broken(StateBackend):
        def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> backends.Output:
            return output(OutputState(compile_constraint(kind, text, self.vocabulary)), max_tokens)

    return Broken()


@pytest.mark.parametrize(
    ("check", "backend", "reason"),
    [
        (backends.check_masks, broken(allowed=lambda self: range(6144)), "lead out of the language"),
        (backends.check_masks, broken(allowed=lambda self: StateOutput.allowed(self)[1:]), "belong to the language"),
        (backends.check_masks, broken(accept=lambda self, token: False), "is refused, although the mask allows it"),
        (backends.check_end, broken(is_terminated=lambda self: False), "is_terminated is wrong"),
        (backends.check_rollback, broken(rollback=lambda self, count: None), "after the tokens"),
        (backends.check_drafts, broken(valid_prefix=lambda self, tokens: tokens), "begins with an excluded token"),
        (backends.check_drafts, broken(valid_prefix=lambda self, tokens: []), "a part is refused"),
        (backends.check_forced_tokens, broken(forced_tokens=lambda self: [5]), "is forced, but not allowed"),
        (backends.check_forced_tokens, broken(forced_tokens=lambda self: []), "no token was forced"),
        (backends.check_copies, broken(copy=lambda self: self), "changes with its original"),
    ],
)
def test_mistakes_are_found(check: backends.Check, backend: backends.Backend, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check(backend)


def test_ignored_budgets_and_accepted_mistakes_are_found() -> None:
    class Unlimited(StateBackend):
        abilities = ("budget",)

        def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> backends.Output:
            return super().start(kind, text)

    with pytest.raises(AssertionError, match="lead out of the language"):
        backends.check_budget(Unlimited())

    class Lenient(StateBackend):
        def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> backends.Output:
            try:
                return super().start(kind, text)
            except ValueError:
                return super().start("json_object", "")

    with pytest.raises(AssertionError, match="is not refused"):
        backends.check_refused_constraints(Lenient())


def test_kit_and_serving_need_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import constrain.engine, constrain.integrations.serving, constrain.testing.backends\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_abilities_are_refused() -> None:
    class Misspelt(StateBackend):
        abilities = ("refusee",)

    with pytest.raises(ArgumentError, match="'refusee'"):
        backends.check_backend(Misspelt())


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    ("shape", "kind", "row"),
    [((1, 432), np.float64, 0), ((1, 3), np.int32, 0), ((1, 432), np.int32, 1), ((1, 432), np.int32, -1)],
)
def test_bitmasks_that_do_not_fit_are_refused(shape: tuple[int, int], kind: type, row: int, ended: bool) -> None:
    state = OutputState(compile_constraint("choice", '["a"]', small_vocabulary()))
    while ended and not state.is_terminated:
        assert state.accept(int(StateOutput(state, None).allowed()[-1]))
    with pytest.raises(BitmaskError):
        state.fill_bitmask(np.zeros(shape, dtype=kind), row)
    assert state.error is None


@pytest.mark.parametrize("count", [-1, 2, 1.0])
def test_only_accepted_tokens_are_rolled_back(count: Any) -> None:
    state = OutputState(compile_constraint("regex", "[ab]{9}", small_vocabulary()))
    assert state.accept(int(StateOutput(state, None).allowed()[0]))
    with pytest.raises(ArgumentError, match="count"):
        state.rollback(count)
    assert state.num_tokens == 1
