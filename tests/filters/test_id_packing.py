"""Ids of filters as packed bitmasks, shared by the sequences of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from filter_parts import Begin
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain.engine.bitmask import SetDigest, pack_ids
from constrain.errors import FilterError
from constrain.filters import ExLlamaV2Filter
from constrain.filters.id_masks import IdMasks, LargeSets, new_step, pack

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
            return type(error), "no token id" if "no token id" in str(error) else str(error)

    def slowly() -> Any:
        bits = np.zeros(64, dtype=np.uint8)
        for each in collection:
            if type(each) is not int:
                raise FilterError("no token id")
        for each in [min(collection), max(collection)] if collection else ():
            if not 0 <= each < 64:
                raise FilterError(f"next() returned token id {each}, outside the 64 of the model")
        bits[list(collection)] = 1
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


@pytest.mark.parametrize(
    ("ids", "named"),
    [({10.5}, "10.5"), ([True], "True"), ((3.0,), "3.0"), ({"yes"}, "'yes'"), ([4, None], "None"), ([[3]], r"\[3\]")],
)
def test_an_element_that_is_no_id_is_named(ids: Any, named: str) -> None:
    with pytest.raises(FilterError, match=rf"next\(\) returned {named}, which is no token id"):
        pack(ids, 2)


def test_ids_of_numpy_are_ids() -> None:
    assert pack({np.int64(4), 5}, 1).tolist() == [0b110000]
    with pytest.raises(FilterError, match="token id 70, outside the 64"):
        pack([np.int32(70)], 2)
    with pytest.raises(FilterError, match=f"token id {2**70}, outside"):
        pack([3, 2**70], 2)


def test_constants_are_packed_once_and_all_others_anew() -> None:
    for constant in (frozenset({4, 5}), (4, 5)):
        masks = IdMasks()
        first = masks.mask(constant, 2)
        assert masks.mask(constant, 2) is first and first.tokens == [4, 5]
        assert masks.mask(constant, 3) is not first
    masks = IdMasks()
    for changing in ([4, 5], {4, 5}, np.array([4, 5])):
        assert masks.mask(changing, 2) is masks.mask({4, 5}, 2)  # equal ids have one mask
    scratch = [4]
    assert masks.mask(scratch, 2).tokens == [4]
    scratch[0] = 6
    assert masks.mask(scratch, 2).tokens == [6]


class Scratch(ExLlamaV2Filter):
    """Returns a collection that it shares with others, and fills it each time."""

    def __init__(self, shared: Any, token: int) -> None:
        self.shared, self.token = shared, token

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        self.shared.clear()
        (self.shared.append if isinstance(self.shared, list) else self.shared.add)(self.token)
        return self.shared, []


@pytest.mark.parametrize("shared", [[], set()])
def test_filters_that_fill_one_collection_get_their_own_ids(begun: Begin, shared: Any) -> None:
    made = [begun(Scratch(shared, token)) for token in (40, 41, 42)]
    for _ in range(2):
        new_step()
        assert [each.mask().tokens for each in made] == [[40], [41], [42]]


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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    ids=st.sets(st.integers(0, 60_000), max_size=50),
    size=st.sampled_from([0, 100, 20_000, 40_000]),
    change=st.sampled_from(["none", "swap", "refill", "copy", "order"]),
    place=st.integers(0, 39_999),
)
def test_a_digest_of_a_hash_table_tells_whether_a_set_has_changed(
    ids: set[int], size: int, change: str, place: int
) -> None:
    ids |= set(range(size))
    digest, before = SetDigest(ids), frozenset(ids)
    assert digest == SetDigest(ids)
    if change == "swap" and place in ids:
        ids.remove(place)
        ids.add(70_000)
    elif change == "refill":
        ids.clear()
        ids.update(range(1, len(before) + 1))
    elif change == "copy":
        ids = set(before)
    elif change == "order":  # the same elements, perhaps at other places of the table
        ids.add(99_999)
        ids.remove(99_999)
    if digest == SetDigest(ids):
        assert ids == before
    assert change != "none" or digest == SetDigest(ids)


def test_a_large_set_is_packed_anew_once_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    monkeypatch.setattr(
        "constrain.filters.id_masks.pack", lambda ids, words: packed.append(len(ids)) or pack(ids, words)
    )
    ids = set(range(6000))
    masks = IdMasks()
    first = masks.mask(ids, 256)
    assert masks.mask(ids, 256) is first is IdMasks().mask(ids, 256) and packed == [6000]
    ids.remove(17)
    ids.add(7000)
    changed = masks.mask(ids, 256)
    assert 17 not in changed and 7000 in changed and 17 in first and packed == [6000, 6000]


def test_masks_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrain.filters.id_masks._MAX_KEPT", 3)
    sets, masks = LargeSets(), IdMasks()
    kept = [set(range(6000)) for _ in range(8)]
    for ids in kept:
        sets.mask(ids, 256, masks._of_row)
    assert len(sets._known) == 3
