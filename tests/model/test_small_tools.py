from __future__ import annotations

import pytest
import torch

from constrain.model import SeqTensor, Timer


def test_a_timer_measures_what_it_encloses() -> None:
    with Timer() as timer:
        pass
    assert timer.interval == timer.end_time - timer.start_time >= 0


@pytest.mark.parametrize("seq_dim", [1, -1])
def test_growing(seq_dim: int) -> None:
    grown = SeqTensor((2, 0), torch.long, seq_dim, init_cap=1)
    assert not grown and len(grown) == 0 and grown.torch().shape == (2, 0)
    expected = torch.arange(200).view(2, 100)
    for start in range(0, 100, 7):
        grown.append(expected[:, start : start + 7])
    grown.append(None)
    assert grown and len(grown) == 100 and torch.equal(grown.torch(), expected)


def test_growing_by_single_numbers() -> None:
    grown = SeqTensor((1, 0), torch.long, 1, init_cap=4)
    for number in range(11):
        grown.append_one(number)
        assert len(grown) == number + 1
    grown.append(torch.tensor([[20, 21]]))
    grown.append_one(22)
    assert grown.torch().tolist() == [[*range(11), 20, 21, 22]]
    grown.append_one(23)
    grown.truncate(12)
    grown.append_one(5)
    assert grown.torch_slice(10, None).tolist() == [[10, 20, 5]]
    grown.append_one(6)
    grown.clear()
    assert not grown and grown.torch().tolist() == [[]]


@pytest.mark.parametrize("appended", [0, 1, 4])
def test_last_numbers_of_those_that_are_stored_and_of_those_that_were_appended(appended: int) -> None:
    whole = SeqTensor.from_tensor(torch.arange(3)[None], 1)
    for number in range(3, 3 + appended):
        whole.append_one(number)
    expected = list(range(3 + appended))
    for start in range(len(expected) + 1):
        assert whole.last(start) == expected[start:]
    assert whole.torch().tolist() == [expected] == [whole.last(0)]


def test_parts_and_copies() -> None:
    values = torch.arange(12).view(4, 3)
    whole = SeqTensor.from_tensor(values, 0)
    assert torch.equal(whole.torch_slice(1, None), values[1:])
    part, shorter = whole.slice(None, 2), whole.clone(drop=3)
    whole.torch().zero_()
    assert torch.equal(part.torch(), values[:2]) and torch.equal(shorter.torch(), values[:1])
    assert values.any()


def test_replacing_and_forgetting() -> None:
    tensor = SeqTensor.from_tensor(torch.arange(5), 0)
    tensor.set(tensor.slice(3, None))
    assert tensor.torch().tolist() == [3, 4]
    tensor.set(tensor.torch_slice(1, None))
    assert tensor.torch().tolist() == [4]
    tensor.append(SeqTensor.from_tensor(torch.tensor([7, 8]), 0))
    tensor.truncate(2)
    assert tensor.torch().tolist() == [4, 7]
    tensor.truncate(9)
    assert len(tensor) == 2
    tensor.clear()
    assert len(tensor) == 0
