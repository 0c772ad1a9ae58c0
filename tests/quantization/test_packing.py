"""The layout of packed weights is the published one."""

from __future__ import annotations

import pytest
import torch

from constrain.quantization.packing import CodedWeight, pack, unpack


def random_codes(bits: int, *shape: int) -> torch.Tensor:
    limit = 1 << (bits - 1)
    return torch.randint(-limit, limit, shape, generator=torch.Generator().manual_seed(bits)).to(torch.int8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("inputs", [8, 64, 13])
def test_codes_are_bits_of_words_from_the_lowest_on(bits: int, inputs: int) -> None:
    codes = random_codes(bits, 5, inputs)
    words = pack(codes, bits)
    assert words.dtype is torch.int32 and words.shape == (5, -(-inputs * bits // 32))
    for row, line in zip(codes.tolist(), words.tolist(), strict=True):
        number = sum((word & 0xFFFFFFFF) << (32 * place) for place, word in enumerate(line))
        assert row == [(number >> (bits * i) & ((1 << bits) - 1)) - (1 << (bits - 1)) for i in range(inputs)]


@pytest.mark.parametrize("bits", [4, 8])
def test_unpacking_is_the_inverse(bits: int) -> None:
    codes = random_codes(bits, 7, 64)
    assert torch.equal(unpack(pack(codes, bits), bits), codes)
    limit = 1 << (bits - 1)
    ends = torch.tensor([[-limit, limit - 1] * 8], dtype=torch.int8)
    assert torch.equal(unpack(pack(ends, bits), bits), ends)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_tensors_of_a_weight(bits: int) -> None:
    scales = torch.tensor([[0.5, 2.0], [1.0, 0.25]]).bfloat16()
    weight = CodedWeight(random_codes(bits, 2, 12), scales, bits)
    tensors = weight.tensors("a.b")
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "a.b.weight_packed": torch.int32,
        "a.b.weight_scale": torch.bfloat16,
        "a.b.weight_shape": torch.int64,
    }
    assert tensors["a.b.weight_shape"].tolist() == [2, 12]
    again = CodedWeight.of_tensors(tensors, "a.b", bits)
    assert torch.equal(again.codes, weight.codes)
    wanted = torch.cat(
        [weight.codes[:, :6] * scales.float()[:, :1], weight.codes[:, 6:] * scales.float()[:, 1:]], dim=1
    )
    assert torch.equal(again.dequantized(), wanted)
