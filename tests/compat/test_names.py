"""Names of exllamav2 that have no counterpart in constrain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from constrain.compat.exllamav2 import absent, attention, config, extension, live_tensors, ngram, tensor_file, tools
from constrain.errors import ModelError, WeightsError
from constrain.model import ExLlamaV2Config, ExLlamaV2VisionTower


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ExLlamaV2VisionTower(ExLlamaV2Config()), ValueError),
        (lambda: absent.ExLlamaV2MultimodalProjector(SimpleNamespace(vision_model_type="pixtral")), ValueError),
        (lambda: absent.ExLlamaV2PosEmbedding(), ModelError),
        (lambda: extension.make_q_matrix({}), WeightsError),
        (attention.assert_paged_attn, AssertionError),
    ],
)
def test_what_is_absent_says_so(make: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_four_bits() -> None:
    numbers = torch.arange(32, dtype=torch.uint8).view(2, 16) % 16
    packed = tools.pack_4bit(numbers)
    assert packed.dtype == torch.int32 and packed[0, 0] & 0xFF == 0x10
    assert torch.equal(tools.unpack_4bit(packed), numbers)


@pytest.mark.parametrize(
    ("x", "split", "parts"),
    [
        (10, [1, 1], [5, 5]),
        (10, [2, 1], [7, 3]),
        (7, [1, 1, 1], [3, 2, 2]),
        (8, [100, 1], [8, 0]),
        (3, [2, 2], [2, 1]),
    ],
)
def test_whole_parts(x: int, split: list[float], parts: list[int]) -> None:
    assert tools.integer_split(x, split) == parts


def test_small_tools(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = torch.ones(2), torch.zeros(2)
    assert torch.equal(tools.safe_move_tensor(a, "cpu"), a)
    assert [t.device.type for t in tools.safe_move_tensor([a, b], "cpu")] == ["cpu"] * 2
    assert tools.test_gpu_peer_copy(torch.device("cpu"), torch.device("cpu"))
    assert tools.timed(lambda x: x + 1)(1) == 2
    assert "s\n" in capsys.readouterr().out
    assert list(tools.get_all_gpu_memory()) == tools.get_visible_devices()
    tools.cuda_sync_active()


def test_new_tensors_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    live_tensors.set_snapshot()
    kept = torch.zeros(3, 1, 4, 1, 5)
    live_tensors.diff_snapshot()
    assert "1 x torch.float32 [3, 1, 4, 1, 5] on cpu" in capsys.readouterr().out.split("gone:")[0]
    del kept
    live_tensors.diff_snapshot()
    assert "[3, 1, 4, 1, 5]" not in capsys.readouterr().out


def test_functions_of_the_extension() -> None:
    functions = extension.EXTENSION
    logits = torch.tensor([[[1.0, -1.0, 2.0]]])
    functions.apply_rep_penalty(torch.tensor([[0, 1]]), 2.0, -1, 0, 0.0, 0.0, logits)
    assert logits.tolist() == [[[0.5, -2.0, 2.0]]]
    mask = torch.tensor([[True, True, False]])
    functions.logit_filter_exclusive(mask, [[1, 2]])
    assert mask.tolist() == [[False, True, False]]
    total = torch.zeros(2, 2)
    functions.fast_fadd_cpu(total, torch.tensor([1.0, 2.0]))
    assert total.tolist() == [[1.0, 2.0]] * 2
    functions.fast_copy_cpu(total, torch.ones(2, 2))
    assert total.all()
    functions.fast_fill_cpu_ones_bool(mask)
    assert mask.all()
    assert functions.count_match(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2, 4, 5]]), 9) == 2
    assert functions.count_match(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2]]), 1) == 1


@pytest.mark.parametrize(
    ("text", "strings", "found"),
    [("hello", ["lo"], 3), ("hello", ["xx", "e"], 1), ("hel", ["elf"], -2), ("hell", ["fe"], -1), ("añb", ["ñb"], 1)],
)
def test_strings_are_matched_to_the_end(text: str, strings: list[str], found: int) -> None:
    encoded = [string.encode("utf-32-le") for string in strings]
    offsets = torch.tensor([0, *(len(part) for part in encoded)]).cumsum(0)
    assert extension.partial_strings_match(text.encode("utf-32-le"), offsets, b"".join(encoded)) == found


def test_single_tensors_of_a_file(tmp_path: Path) -> None:
    save_file({"a": torch.arange(4.0), "b": torch.ones(2, dtype=torch.int32)}, tmp_path / "x.safetensors")
    file = tensor_file.STFile.open(tmp_path / "x.safetensors")
    assert set(file.get_dict()) == {"a", "b"}
    assert file.get_tensor("a", out_dtype=torch.half).tolist() == [0, 1, 2, 3]
    assert file.get_tensor("b").dtype == torch.int32
    with pytest.raises(WeightsError, match="no tensor c"):
        file.get_tensor("c")


def test_tokens_are_guessed_by_what_followed_before() -> None:
    cache = ngram.NgramCache(1, 3)
    cache.update([1, 2, 3, 9, 2, 3, 7, 2, 3, 7])
    assert cache.predict_next([5, 2]) == 3
    assert cache.predict_next([2, 3]) == 7  # twice, against once 9
    assert cache.predict_next([1, 2, 3]) == 9  # the longest counts
    assert cache.predict_next([1, 2, 3], threshold=2) == 7
    assert cache.predict_next([8]) is None and cache.predict_next([2, 3], threshold=3) is None
    assert cache.predict_next([8], preload=ngram.NgramCache(1, 2, [8, 4])) == 4
    assert ngram.NgramCache(2, 3, [1, 2, 3]).predict_next([2]) is None


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({}, {"yarn_rope_factor": None, "scale_long_factor": None, "num_experts": None, "scale_emb": 1.0}),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
            {"yarn_rope_factor": 4.0, "yarn_rope_original_max_position_embeddings": 64},
        ),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.5, "high_freq_factor": 5.0},
            {"l3_rope_factor": 8.0, "l3_rope_low_freq_factor": 1.5, "l3_rope_high_freq_factor": 5.0},
        ),
        (
            {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
            {"scale_short_factor": [1.0] * 4, "scale_long_factor": [2.0] * 4},
        ),
    ],
)
def test_configs_know_what_programs_ask(tiny_dir: Path, tmp_path: Path, rope: Any, expected: Any) -> None:
    described = json.loads((tiny_dir / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**described, "rope_scaling": rope}))
    made = config.ExLlamaV2Config()
    made.model_dir = str(tmp_path)
    made.prepare(no_tensors=True)
    assert {name: getattr(made, name) for name in expected} == expected
