"""Adapters of filters: copies of constraints, and subclasses whose state they do not know."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from filter_parts import MODEL, Begin, EagerFilter, Script

from constrain import ExLlamaV2Tokenizer
from constrain.errors import FilterError
from constrain.filters import ExLlamaV2RegexFilter


@pytest.mark.parametrize("form", ["Ids", "Logits", "Bits"])
def test_a_fork_goes_its_own_way(script: Script, begun: Begin, form: str) -> None:
    target = script(form, ([4], []), ([5], []), ([6], []))
    made = begun(target)
    made.mask()
    made.accept(4)
    fork = made.fork()
    assert fork.mask().tokens == [5] == made.mask().tokens
    fork.accept(7)
    assert fork.mask().tokens == [6] and target.trace[-1] != "feed 7"
    fork.accept(9)
    fork.close()
    assert made.mask().tokens == [6]


def test_a_filter_is_copied_only_by_a_method_that_knows_all_of_it(tokenizer: ExLlamaV2Tokenizer, begun: Begin) -> None:
    class Counting(ExLlamaV2RegexFilter):
        """Has state that the inherited ``clone`` does not copy."""

        count = 0

        def feed(self, token: torch.Tensor) -> None:
            self.count += 1
            super().feed(token)

    class Copied(Counting):
        def clone(self, c: Any = None) -> Any:
            c = super().clone(c)
            c.count = self.count
            return c

    with pytest.raises(FilterError, match=r"Counting: has no clone\(\) of its own"):
        begun(Counting(MODEL, tokenizer, "[a-z]+")).fork()
    made = begun(Copied(MODEL, tokenizer, "[a-z]+"))
    made.accept(int(tokenizer.encode("the")[0, 0]))
    fork = made.fork()
    assert fork.filter.count == 1 and fork.mask().id == made.mask().id
    with pytest.raises(FilterError, match=r"EagerFilter: has no clone\(\)"):
        begun(EagerFilter()).fork()


def test_a_subclass_that_feeds_in_its_own_way_is_fed(tokenizer: ExLlamaV2Tokenizer, begun: Begin) -> None:
    class Counting(ExLlamaV2RegexFilter):
        fed = 0

        def feed(self, token: torch.Tensor) -> None:
            self.fed += 1
            super().feed(token)

    made = begun(Counting(MODEL, tokenizer, "[a-z ]+"))
    assert made.matchers is None
    made.accept(int(tokenizer.encode("the")[0, 0]))
    assert made.filter.fed == 1 and made.filter.matcher.accepted_tokens == 1


@pytest.mark.parametrize("clone", [None, 5, ExLlamaV2RegexFilter])
def test_a_clone_that_is_no_filter_is_refused(script: Script, begun: Begin, clone: Any) -> None:
    target = script("Duck", ([4], []))
    target.clone = lambda: clone
    with pytest.raises(FilterError, match=r"Duck: clone\(\) must return a filter, not "):
        begun(target).fork()
