"""Perplexity and divergence are those of their definitions, and mistakes are named."""

from __future__ import annotations

import json
import math
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from constrain import ExLlamaV2, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.errors import ArgumentError, ModelError
from constrain.quantization import Text, evaluate_model, predictions
from constrain.quantization.layerwise import LayerwiseModel
from constrain.quantization.texts import listed, windows_of

TEXTS = [
    "The quick brown fox jumps over the lazy dog. hello there, help the héros of the naïve café",
    Text('{"name": "Ada"}', prompt='{"a": 1} '),
    "x",
]

Change = Callable[[str, torch.Tensor], torch.Tensor]


def changed(source: Path, folder: Path, change: Change) -> Path:
    """A copy of a model with other weights."""
    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name: change(name, weight) for name, weight in weights.items()}, str(folder / "model.safetensors"))
    return folder


@pytest.fixture(scope="module")
def other_dir(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a little noise."""
    random = torch.Generator().manual_seed(3)

    def noisy(name: str, weight: torch.Tensor) -> torch.Tensor:
        return weight + 0.03 * torch.randn(weight.shape, generator=random)

    return changed(tiny_dir, tmp_path_factory.mktemp("models") / "noisy", noisy)


def log_probabilities(folder: Path, context: int, stride: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All distributions of the windows, by passes of the whole model, and the tokens that came."""
    config = ExLlamaV2Config(folder)
    model = ExLlamaV2(config)
    model.load()
    found, came = [], []
    for window in windows_of(ExLlamaV2Tokenizer(config), listed(TEXTS), context, stride):
        logits = model.forward(window.ids.unsqueeze(0))[0, :, : config.vocab_size].double()
        found.append(logits.log_softmax(-1)[window.first - 1 : -1])
        came.append(window.ids[window.first :])
    return torch.cat(found), torch.cat(came)


@pytest.mark.parametrize(("context", "stride"), [(16, 5), (256, 128)])
def test_the_figures_are_those_of_whole_passes(tiny_dir: Path, other_dir: Path, context: int, stride: int) -> None:
    found = evaluate_model(other_dir, TEXTS, against=tiny_dir, context=context, stride=stride)
    (q, came), (p, _) = (log_probabilities(folder, context, stride) for folder in (other_dir, tiny_dir))
    divergences = (p.exp() * (p - q)).sum(-1)
    assert found.tokens == len(came)
    assert found.perplexity == pytest.approx(math.exp(-q.gather(1, came[:, None]).mean()), rel=1e-5)
    assert found.divergence is not None
    assert found.divergence.perplexity == pytest.approx(math.exp(-p.gather(1, came[:, None]).mean()), rel=1e-5)
    assert found.divergence.mean == pytest.approx(float(divergences.mean()), rel=1e-3)
    ranked = sorted(divergences.tolist())
    assert found.divergence.median == pytest.approx(ranked[(len(ranked) - 1) // 2], rel=1e-3)
    assert found.divergence.p99 == pytest.approx(ranked[math.ceil(0.99 * len(ranked)) - 1], rel=1e-3)
    assert found.divergence.largest == pytest.approx(float(divergences.max()), rel=1e-3)
    assert found.divergence.top1 == float((p.argmax(-1) == q.argmax(-1)).double().mean())
    assert 0 < found.divergence.median < found.divergence.p99 <= found.divergence.largest


def test_logits_are_computed_in_blocks(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate_model(tiny_dir, TEXTS, against=tiny_dir)
    monkeypatch.setattr(predictions, "_LOGITS", 7 * 380)
    assert evaluate_model(tiny_dir, TEXTS, against=tiny_dir).perplexity == pytest.approx(whole.perplexity, rel=1e-6)


def test_a_model_does_not_differ_from_itself(tiny_dir: Path) -> None:
    found = evaluate_model(tiny_dir, TEXTS, against=tiny_dir)
    assert found.divergence is not None
    assert (found.divergence.largest, found.divergence.top1) == (0, 1)
    assert found.perplexity == found.divergence.perplexity
    assert not torch.is_inference_mode_enabled()
    assert (found.context, found.stride) == (256, 128)
    assert json.loads(json.dumps(found.to_json()))["divergence"]["top1"] == 1


def test_one_module_at_a_time_is_in_memory(tiny_dir: Path) -> None:
    model, seen = LayerwiseModel(tiny_dir), []
    for module in model.modules():
        assert not [ref for ref in seen if ref() is not None]
        seen.append(weakref.ref(module))
        del module
    assert len(seen) == model.count


def test_progress_is_told_of_every_step(tiny_dir: Path) -> None:
    told: list[tuple[int, int]] = []
    evaluate_model(tiny_dir, TEXTS, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1] and len(told) > 10


def test_short_texts_are_an_error(tiny_dir: Path) -> None:
    for texts in ("", [], [Text("", prompt="hello")]):
        with pytest.raises(ArgumentError, match="the texts are too short"):
            evaluate_model(tiny_dir, texts)


def test_windows_must_fit_into_the_model(tiny_dir: Path) -> None:
    with pytest.raises(ModelError, match=r"windows of 257 tokens are longer .* which is 256"):
        evaluate_model(tiny_dir, TEXTS, context=257)
    with pytest.raises(ArgumentError, match="max_tokens must be a whole number of at least 1"):
        evaluate_model(tiny_dir, TEXTS, max_tokens=0)


def test_other_vocabularies_are_an_error(tiny_dir: Path, tmp_path: Path) -> None:
    def one_more(name: str, weight: torch.Tensor) -> torch.Tensor:
        return torch.cat((weight, weight[:1])) if name.startswith(("lm_head", "model.embed")) else weight

    larger = changed(tiny_dir, tmp_path / "larger", one_more)
    config = json.loads((larger / "config.json").read_text())
    (larger / "config.json").write_text(json.dumps(config | {"vocab_size": config["vocab_size"] + 1}))
    size = config["vocab_size"]
    with pytest.raises(ArgumentError, match=rf"have different vocabularies \({size + 1} and {size} tokens\)"):
        evaluate_model(larger, TEXTS, against=tiny_dir)


def test_other_tokenizers_are_an_error(tiny_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(tiny_dir, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ArgumentError, match="they divide the texts into different tokens"):
        evaluate_model(tiny_dir, TEXTS, against=folder)


def test_logits_that_are_no_numbers_are_an_error(tiny_dir: Path, tmp_path: Path) -> None:
    def broken(name: str, weight: torch.Tensor) -> torch.Tensor:
        return weight * math.nan if "layers.1.mlp.down" in name else weight

    folder = changed(tiny_dir, tmp_path / "broken", broken)
    with pytest.raises(ModelError, match=r"broken: the probabilities of \d+ of \d+ tokens are no numbers"):
        evaluate_model(folder, TEXTS)
