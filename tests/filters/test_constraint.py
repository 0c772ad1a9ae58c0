"""Constraints of the engine: native batches, budgets, and forks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from filter_parts import EOS, WIDTH, tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain import ExLlamaV2Tokenizer
from constrain._core import Workers
from constrain.errors import FilterError
from constrain.filters import (
    Constraint,
    ExLlamaV2JSONSchemaFilter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2RegexFilter,
    ExLlamaV2SelectFilter,
    combine,
)
from constrain.filters.masks import TokenMask

MODEL: Any = SimpleNamespace(config=SimpleNamespace(vocab_size=WIDTH))
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}}}
WORKERS = Workers(2)
#: Filters by name, and whether a matcher is all there is to them.
KINDS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "words": (lambda tokenizer: ExLlamaV2RegexFilter(MODEL, tokenizer, "[a-z ]{2,40}"), True),
    "few": (lambda tokenizer: ExLlamaV2RegexFilter(MODEL, tokenizer, r'[a-f{} ":]{3,60}'), True),
    "any": (lambda tokenizer: ExLlamaV2RegexFilter(MODEL, tokenizer, r"[\s\S]*"), True),
    "json": (lambda tokenizer: ExLlamaV2JSONSchemaFilter(MODEL, tokenizer, SCHEMA), True),
    "prefix": (lambda tokenizer: ExLlamaV2PrefixFilter(MODEL, tokenizer, ["the ", "a ", "{"]), False),
    "select": (lambda tokenizer: ExLlamaV2SelectFilter(MODEL, tokenizer, ["a cab", "the fox", '{"age"']), False),
}
Make = Callable[[Sequence[str]], Constraint]


@pytest.fixture(scope="session")
def make(tokenizer: ExLlamaV2Tokenizer) -> Make:
    def make(names: Sequence[str]) -> Constraint:
        made = combine([KINDS[name][0](tokenizer) for name in names], tokenizer, WIDTH)
        made.begin()
        return made

    return make


def key(mask: TokenMask | None) -> Any:
    """Return the tokens of a mask, since equal masks of different classes have different identities."""
    return None if mask is None else tuple(tokens(mask))


def outcome(constraint: Constraint, budget: int | None) -> Any:
    """Return the mask of a constraint, or its error."""
    try:
        return key(constraint.mask(budget)), sorted(constraint.end_tokens), constraint.min_tokens()
    except FilterError as error:
        return type(error), str(error)


def advance(constraints: Sequence[Constraint], chosen: Sequence[int], budget: int | None, with_masks: bool) -> None:
    """Accept a token with each constraint, in one native batch for those that have matchers."""
    batch = [(each, token, each.matchers) for each, token in zip(constraints, chosen, strict=True)]
    rows = [(matcher, token) for _, token, matchers in batch for matcher in matchers or ()]
    running = WORKERS.take([row[0] for row in rows], [row[1] for row in rows], [budget] * len(rows))
    results = iter([running.result(place) for place in range(len(rows))])
    for each, token, matchers in batch:
        found = [next(results) for _ in matchers or ()]
        if matchers is None or not all(taken for taken, _ in found):
            for matcher, (taken, _) in zip(matchers or (), found, strict=True):
                if taken:  # all or none
                    matcher.rollback(1)
            each.accept(token)
        else:
            each.accepted(token, [mask for _, mask in found] if with_masks else None)


@pytest.mark.parametrize("name", KINDS)
def test_matchers_are_given_where_they_are_all_there_is(make: Make, name: str) -> None:
    single, pair = make([name]), make([name, "words"])
    count = int(KINDS[name][1])
    assert len(single.matchers or ()) == count and len(pair.matchers or ()) == 2 * count
    assert (single.matchers is None) == (pair.matchers is None) == (not count)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    batch=st.lists(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    budget=st.none() | st.integers(8, 60),
)
def test_a_native_batch_is_where_constraints_are_that_accept_one_by_one(
    make: Make, batch: list[list[str]], seed: int, budget: int | None
) -> None:
    rng = random.Random(seed)
    together, alone = [make(names) for names in batch], [make(names) for names in batch]
    for _ in range(8):
        said = [outcome(each, budget) for each in together]
        assert said == [outcome(each, budget) for each in alone]
        left = [i for i, each in enumerate(said) if not isinstance(each[0], type)]
        together, alone = [together[i] for i in left], [alone[i] for i in left]
        # Mostly tokens that are allowed, and some that a hook has put there.
        chosen = [
            rng.randrange(3, 300) if rng.random() < 0.1 else rng.choice(tokens(each.mask(budget))) for each in alone
        ]
        budget = None if budget is None else budget - 1
        advance(together, chosen, budget, rng.random() < 0.7)
        for each, token in zip(alone, chosen, strict=True):
            each.accept(token)


def test_masks_of_a_batch_are_not_computed_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for names in (["words"], ["words", "few"], ["any"]):
        made, other = make(names), make(names)
        token = tokens(made.mask())[3]
        advance([made], [token], 30, True)
        other.accept(token)
        expected = other.mask(30)
        with monkeypatch.context() as patched:
            patched.setattr(ExLlamaV2RegexFilter, "token_mask", None, raising=False)
            assert [*made.end_tokens] == ([] if expected is None else [EOS])
            assert key(made.mask(30)) == key(expected)
        # Once: it may be asked with another budget next.
        assert all(key(made.mask(budget)) == key(other.mask(budget)) for budget in (30, 3, None))


def test_masks_of_a_batch_are_forgotten_with_the_next_token(make: Make) -> None:
    made, other = make(["words"]), make(["words"])
    token = tokens(made.mask())[3]
    advance([made], [token], None, True)
    made.accept(token)
    for _ in range(2):
        other.accept(token)
    assert key(made.mask(20)) == key(other.mask(20))
    advance([made], [token], None, True)
    made.begin()
    assert key(made.mask()) == key(make(["words"]).mask())


def test_errors_after_a_batch_show_the_text(tokenizer: ExLlamaV2Tokenizer, make: Make) -> None:
    made = make(["words", "any"])
    text = tokenizer.encode("the fox")[0].tolist()
    for token in text:
        advance([made], [token], None, True)
    made.accept(7)
    with pytest.raises(FilterError, match="token 7 was put into the sequence") as caught:
        made.mask()
    assert (caught.value.tail or "").startswith("the fox")
    assert made.matchers is None  # the filter has more to say than its matcher


def test_the_same_filter_twice_is_refused_and_a_shared_matcher_is_no_batch(tokenizer: ExLlamaV2Tokenizer) -> None:
    regex, other = (ExLlamaV2RegexFilter(MODEL, tokenizer, "[a-z]+") for _ in range(2))
    with pytest.raises(FilterError, match=r"ExLlamaV2RegexFilter: is given twice, .*clone\(\)"):
        combine([regex, other, regex], tokenizer, WIDTH)
    assert combine([regex, other], tokenizer, WIDTH).matchers is not None
    other.matcher = regex.matcher
    assert combine([regex, other], tokenizer, WIDTH).matchers is None


def test_healing_takes_no_part_in_a_batch(make: Make) -> None:
    made = make(["words"])
    made.begin("th")
    assert made.matchers is None
    made.begin("")
    assert made.matchers is not None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    names=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    budget=st.none() | st.integers(8, 60),
)
def test_forks_go_their_own_way(make: Make, names: list[str], seed: int, budget: int | None) -> None:
    """Forks of forks: each has the masks of a constraint that has accepted the same tokens."""
    rng = random.Random(seed)
    sequences: list[tuple[Constraint, list[int]]] = [(make(names), [])]
    for _ in range(10):
        made, path = rng.choice(sequences)
        fork = made.fork()
        assert fork is not None
        left = None if budget is None else max(1, budget - len(path))
        said = outcome(fork, left)
        alone = make(names)
        for token in path:
            alone.accept(token)
        assert said == outcome(alone, left) == outcome(made, left)
        if isinstance(said[0], type):
            continue
        token = rng.choice(tokens(fork.mask(left)))
        if rng.random() < 0.5:
            advance([fork], [token], None if left is None else max(1, left - 1), True)
        else:
            fork.accept(token)
        sequences.append((fork, [*path, token]))


def test_masks_after_tokens_that_may_come(tokenizer: ExLlamaV2Tokenizer) -> None:
    pattern, text = "(the|this) [a-z]{3}", tokenizer.encode("the fox")[0].tolist()
    made, other = (combine([ExLlamaV2RegexFilter(MODEL, tokenizer, pattern)], tokenizer, WIDTH) for _ in range(2))
    made.begin()
    other.begin()
    ahead = made.fork()
    assert ahead is not None
    found, expected = [key(ahead.mask(9))], [key(other.mask(9))]
    for number, token in enumerate(text, 1):
        ahead.accept(token)
        other.accept(token)
        found.append(key(ahead.mask(9 - number)))
        expected.append(key(other.mask(9 - number)))
    assert found == expected and len(set(found)) > 1
    # The constraint itself is where it was, and a token that cannot come is an error of the fork alone.
    ahead = made.fork()
    assert ahead is not None
    ahead.accept(0)
    with pytest.raises(FilterError, match="token 0 was put"):
        ahead.mask(9)
    assert key(made.mask(9)) == expected[0]


def test_a_filter_is_fed_every_token(tokenizer: ExLlamaV2Tokenizer) -> None:
    class Counting(ExLlamaV2RegexFilter):
        """A third-party filter that overrides ``feed``."""

        count = 0

        def feed(self, token: torch.Tensor) -> None:
            self.count += 1
            super().feed(token)

    counting = Counting(MODEL, tokenizer, "[a-z ]+")
    made = combine([counting], tokenizer, WIDTH)
    made.begin()
    advance([made], [int(tokenizer.encode("the")[0, 0])], None, True)
    assert counting.count == 1 and counting.matcher.accepted_tokens == 1
