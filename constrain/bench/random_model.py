"""Models of a shape with random weights, made on the device, and a tokenizer for them."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shutil import copy
from typing import Any, cast

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from constrain.bench.shapes import Shape
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.modules import Embedding, Head
from constrain.model.tensor_files import TensorFiles
from constrain.tokenizer import ExLlamaV2Tokenizer

_SPREAD = 0.02
_LOUD = 1e6


class _RandomTensors:
    """Stands in for the files of a checkpoint: norms are one, and everything else is normal."""

    def dtype(self, key: str) -> torch.dtype:
        return torch.bfloat16

    def reader(self, tensors: object) -> AbstractContextManager[_RandomTensors]:
        return nullcontext(self)

    def copy(self, key: str, target: torch.Tensor) -> None:
        if "norm" in key:
            target.fill_(1.0)
        else:
            target.normal_(0.0, _SPREAD)


def random_model(shape: Shape, folder: Path, tokenizer_dir: Path | None = None) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """A loaded model, and a tokenizer.

    Args:
        shape: of the model.
        folder: an empty folder, for the files that have to be there.
        tokenizer_dir: has the files of the tokenizer, which has no more tokens than the model; without it, the
            tokenizer has a word for each id.
    """
    (folder / "config.json").write_text(json.dumps(shape.config()))
    if tokenizer_dir is None:
        vocabulary = {f"t{token}": token for token in range(shape.vocab_size)}
        words = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.save(str(folder / "tokenizer.json"))
    else:
        for file in tokenizer_dir.glob("tokenizer*.json"):
            copy(file, folder)
    config = ExLlamaV2Config()
    config.model_dir = str(folder)
    config.prepare(no_tensors=True)
    config.files = cast(TensorFiles, _RandomTensors())
    model = ExLlamaV2(config)
    model.load()
    return model, ExLlamaV2Tokenizer(config)


def prefer(model: ExLlamaV2, weights: torch.Tensor) -> None:
    """Let a random model draw tokens with probabilities proportional to ``weights`` ``[tokens]``, whatever came before.

    One feature of its states, the same everywhere, drowns all others. Its steps cost what they did.
    """
    embedding, head = model.modules[0], model.modules[model.head_layer_idx]
    assert isinstance(embedding, Embedding) and isinstance(head, Head)
    embedding.weight[:, 0] = _LOUD
    # What is left of it once the last norm has made the mean square 1.
    loud = embedding.hidden_size**0.5
    head.weight[: len(weights), 0] = (weights.log() / loud).to(head.weight)


def random_transformers_model(shape: Shape) -> Any:
    """A model of a shape as transformers has it, in bfloat16 on the GPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model: Any = LlamaForCausalLM(LlamaConfig(**shape.config()))
    finally:
        torch.set_default_dtype(torch.float32)
    return model.eval()
