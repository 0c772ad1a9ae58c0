"""Ids of filters as packed bitmasks, shared by the sequences of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from filter_parts import Begin
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain.engine.bitmask import pack_ids
from constrain.errors import FilterError
from constrain.filters import ExLlamaV2Filter
from constrain.filters.adapter import IdPacker, new_step, pack

IDS = st.lists(
    st.integers(-3, 70) | st.sampled_from([2**31, 2**61 - 1, 2**61 + 4, 2**63, 2**64 + 1, True, 3.0, 5.5, "7"])
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ids=IDS, kind=st.sampled_from([set, frozenset, list, tuple]))
def test_ids_are_packed_natively_exactly_as_by_numpy(ids: list[Any], kind: Any) -> None:
    def outcome(work: Callable[[], Any]) -> Any:
        try:
            return work().tolist()
        except Exception as error:
            return type(error), str(error)

    def slowly() -> Any:
        index = np.fromiter(collection, dtype=np.int64, count=len(collection))
        is_outside = index.size > 0 and not 0 <= index.min() <= index.max() < 64
        for each in collection if is_outside else ():
            if not 0 <= each < 64:
                raise FilterError(f"next() returned token id {each}, outside the 64 of the model")
        bits = np.zeros(64, dtype=np.uint8)
        bits[index] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)

    collection = kind(ids)
    assert outcome(lambda: pack(collection, 2)) == outcome(slowly)
    native = pack_ids(collection, 2)
    if all(type(each) is int and 0 <= each < 64 for each in collection):
        assert native is not None and native.tolist() == slowly().tolist()
    else:
        assert native is None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ids=st.sets(st.integers(0, 20_000)), removed=st.sets(st.integers(0, 20_000)), words=st.integers(626, 640))
def test_large_sets_are_packed(ids: set[int], removed: set[int], words: int) -> None:
    ids -= removed
    expected = np.zeros(32 * words, dtype=np.uint8)
    expected[list(ids)] = 1
    for collection in (ids, frozenset(ids), sorted(ids), np.array(sorted(ids), dtype=np.int64)):
        packed = pack_ids(collection, words)
        assert packed is not None and packed.dtype == np.int32
        assert np.array_equal(np.unpackbits(packed.view(np.uint8), bitorder="little"), expected)


def test_sets_that_are_read_in_parts() -> None:
    words = 4096
    large = set(range(0, 32 * words, 2))
    assert pack_ids(large, words).tolist() == [0x55555555] * words  # type: ignore[union-attr]
    for outsider in (-1, 32 * words, 2**40, "7"):
        assert pack_ids(large | {outsider}, words) is None


def test_sets_that_have_shrunk_and_subclasses() -> None:
    class Odd(set):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([5])

        def __len__(self) -> int:
            return 1

    shrunk = set(range(64))
    for token in range(63):
        shrunk.remove(token)
    assert pack_ids(shrunk, 2).tolist() == [0, -(2**31)]  # type: ignore[union-attr]
    assert pack_ids(Odd([6]), 2) is None and pack(Odd([6]), 2).tolist() == [1 << 5, 0]
    for dtype in (np.int32, np.int64):
        ids = np.arange(64, dtype=dtype)[::2]
        assert pack_ids(ids, 2).tolist() == [0x55555555] * 2  # type: ignore[union-attr]
    assert pack(np.array([1, 3], dtype=np.uint8), 1).tolist() == [10]
    assert pack_ids([], 0).tolist() == []  # type: ignore[union-attr]


def test_a_collection_is_packed_once_a_step() -> None:
    packer, ids = IdPacker(), {4, 5}
    first = packer.pack(ids, 2, 0)
    assert packer.pack(ids, 2, 0) is first and first.tokens == [4, 5]
    assert packer.pack({4, 5}, 2, 0) is not first and packer.pack(ids, 3, 0) is not first
    ids.add(6)
    ids.remove(4)
    assert packer.pack(ids, 2, 0) is first  # nothing may change within a step
    again = packer.pack(ids, 2, None)
    assert again.tokens == [5, 6] and packer.pack(ids, 2, 0) is again
    packer.new_step()
    assert packer.step == 1 and packer.pack(ids, 2, 0) is not packer.pack(ids, 2, 0)  # too late for that step
    assert packer.pack(ids, 2, 1) is packer.pack(ids, 2, 1)
    changing = {7}
    last = packer.pack(changing, 2, None)
    assert packer.pack(changing, 2, 1) is not last  # which was not cached


class Shared(ExLlamaV2Filter):
    """Returns the same set in every step, and removes accepted tokens from it in place."""

    def __init__(self, ids: set[int]) -> None:
        self.ids = ids

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None:
        self.ids.discard(int(token))

    def next(self) -> Any:
        return self.ids, set()


def test_sequences_share_packed_ids_in_a_step(begun: Begin) -> None:
    ids = set(range(100))
    made = [begun(Shared(ids)) for _ in range(3)]
    assert len({id(each.mask()) for each in made}) == 3  # they have just begun
    for _ in range(2):
        new_step()
        assert len({id(each.mask()) for each in made}) == 1
    new_step()
    assert made[0].mask().count == 100
    made[0].accept(5)
    assert made[0].mask().count == 99 and 5 not in made[0].mask()  # in the same step
    new_step()
    fork = begun(Shared(ids))
    assert fork.mask().count == made[1].mask().count == 99
