"""Rounds of requests: the results of each decide about the next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from constrain.completion import PendingRounds, Rounds, submit_all


@dataclass
class Answer:
    """A request that has been answered, unless it is cancelled first."""

    value: Any
    done: bool = True
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def result(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    async def aresult(self) -> Any:
        await asyncio.sleep(0)
        return self.result()


def doubled(*answers: Answer) -> Rounds[list[int]]:
    """Two rounds, the second with twice the results of the first."""
    found = yield answers
    again = yield [Answer(2 * value) for value in found]
    return again


def test_each_round_gets_the_results_of_the_one_before() -> None:
    pending = PendingRounds(doubled(Answer(1), Answer(2)))
    assert pending.done
    assert pending.result() == [2, 4] == pending.result()
    assert asyncio.run(PendingRounds(doubled(Answer(1), Answer(2))).aresult()) == [2, 4]


def test_a_round_is_done_when_all_its_requests_are() -> None:
    answers = Answer(1), Answer(2, done=False)
    assert not PendingRounds(doubled(*answers)).done


def test_a_request_that_fails_cancels_the_others() -> None:
    for is_async in (False, True):
        answers = Answer(1), Answer(ValueError("bad")), Answer(3)
        pending = PendingRounds(doubled(*answers))
        with pytest.raises(ValueError, match="bad"):
            asyncio.run(pending.aresult()) if is_async else pending.result()
        assert all(answer.is_cancelled for answer in answers)


def test_cancelling_cancels_the_round_that_is_being_submitted_too() -> None:
    second = Answer(2)

    def rounds() -> Rounds[int]:
        yield [Answer(1)]
        pending.cancel()
        (value,) = yield [second]
        return value

    pending = PendingRounds(rounds())
    pending.result()
    assert second.is_cancelled


def test_where_one_cannot_be_submitted_none_is() -> None:
    first = Answer(1)

    def refuse() -> Answer:
        raise ValueError("too long")

    with pytest.raises(ValueError, match="too long"):
        submit_all([lambda: first, refuse])
    assert first.is_cancelled
