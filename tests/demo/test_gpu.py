"""The built-in model on a GPU: what it writes on the CPU, and what quantised caches take from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch

import constrain
from constrain.demo.evaluate import samples
from constrain.demo.synth import Split
from constrain.extract import build_prompt
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2Sampler
from constrain.model import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2CacheBase,
    ExLlamaV2Config,
)
from constrain.model.memory import module_sizes
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner
from constrain.tokenizer import ExLlamaV2Tokenizer

pytestmark = pytest.mark.gpu

DOCUMENTS, NEW_TOKENS = 50, 96
PAGE = 256


class Texts(NamedTuple):
    """Prompts, records as the documents have them, and the model's folder."""

    prompts: list[torch.Tensor]
    records: list[torch.Tensor]
    folder: str
    eos: int


@pytest.fixture(scope="module")
def texts() -> Texts:
    llm = constrain.load()
    examples = list(samples(llm, Split.WORDINGS, DOCUMENTS, seed=1))
    encode = llm.tokenizer.encode
    return Texts(
        [encode(build_prompt(e.schema, e.text), add_bos=True, encode_special_tokens=True)[0] for e in examples],
        [encode(e.answer)[0][:NEW_TOKENS] for e in examples],
        llm.model.config.model_dir,
        llm.tokenizer.eos_token_id,
    )


def load(texts: Texts, dtype: torch.dtype, gpu_split: list[float] | None = None) -> ExLlamaV2:
    config = ExLlamaV2Config(texts.folder)
    config.compute_dtype = dtype
    model = ExLlamaV2(config)
    model.load(gpu_split)
    return model


class Steps:
    """All sequences side by side in one cache, a token of each a step."""

    def __init__(self, model: ExLlamaV2, prompts: Sequence[torch.Tensor], kind: type[ExLlamaV2CacheBase]) -> None:
        each = -(-(max(map(len, prompts)) + NEW_TOKENS) // PAGE)
        self._pages = [list(range(row * each, (row + 1) * each)) for row in range(len(prompts))]
        self._model = model
        self._runner = ModelRunner(model, kind(model, max_seq_len=len(prompts) * each * PAGE), PAGE)
        # In half precision on one GPU, these are decode graphs, whatever the cache.
        assert model.compute_dtype is torch.float32 or self._runner.has_graphs
        self._lengths = [len(prompt) - 1 for prompt in prompts]
        for prompt, pages in zip(prompts, self._pages, strict=True):
            self._runner.prefill([BatchRow(prompt[:-1].tolist(), 0, pages)])

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """float32 ``[sequences, vocabulary]`` after one more token of each, ``[sequences]``."""
        places = zip(tokens.tolist(), self._lengths, self._pages, strict=True)
        out = self._runner.decode([BatchRow([token], past, pages) for token, past, pages in places])
        self._lengths = [length + 1 for length in self._lengths]
        with torch.inference_mode():
            logits = self._model.head(out.states[: len(tokens)], out.context)
        return logits.float().cpu()


def greedy(model: ExLlamaV2, texts: Texts) -> list[torch.Tensor]:
    """The tokens that the model takes for the likeliest, up to the end of each text."""
    steps, tokens = Steps(model, texts.prompts, ExLlamaV2Cache), [torch.stack([each[-1] for each in texts.prompts])]
    for _ in range(NEW_TOKENS):
        tokens.append(steps.logits(tokens[-1]).argmax(dim=1))
    written = torch.stack(tokens[1:], dim=1)
    ends = (torch.cat((written, torch.full_like(written[:, :1], texts.eos)), dim=1) == texts.eos).int().argmax(dim=1)
    return [row[: end + 1] for row, end in zip(written, ends.tolist(), strict=True)]


def log_probabilities(
    model: ExLlamaV2, texts: Texts, follow: Sequence[torch.Tensor], kind: type[ExLlamaV2CacheBase]
) -> list[torch.Tensor]:
    """Of all tokens, ``[len(text), vocabulary]``, where each token of the texts comes next."""
    steps, tokens = Steps(model, texts.prompts, kind), torch.stack([each[-1] for each in texts.prompts])
    given = torch.nn.utils.rnn.pad_sequence(list(follow), batch_first=True)
    found = []
    for next_tokens in given.unbind(dim=1):
        found.append(steps.logits(tokens).log_softmax(dim=1))
        tokens = next_tokens
    return [row[: len(text)] for row, text in zip(torch.stack(found, dim=1), follow, strict=True)]


@pytest.fixture(scope="module")
def written_on_cpu(texts: Texts) -> list[torch.Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        model = load(texts, torch.float32)
        assert model.get_cache_devices() == ["cpu"]
        return greedy(model, texts)


def test_texts_are_those_of_the_cpu(texts: Texts, written_on_cpu: list[torch.Tensor]) -> None:
    model = load(texts, torch.float32)
    assert model.get_cache_devices() == ["cuda:0"]
    for on_gpu, on_cpu in zip(greedy(model, texts), written_on_cpu, strict=True):
        assert torch.equal(on_gpu, on_cpu)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_texts_over_two_gpus(texts: Texts, written_on_cpu: list[torch.Tensor]) -> None:
    half = sum(module_sizes(load(texts, torch.float32))) / 2 / 1024**3
    model = load(texts, torch.float32, [half, 1.0])
    assert model.get_cache_devices() == ["cuda:0", "cuda:1"]
    for on_gpus, on_cpu in zip(greedy(model, texts), written_on_cpu, strict=True):
        assert torch.equal(on_gpus, on_cpu)
    tokenizer = ExLlamaV2Tokenizer(model.config)
    generator = ExLlamaV2DynamicGenerator(model, ExLlamaV2Cache(model, max_seq_len=4096), tokenizer)
    written = generator.generate(
        [tokenizer.decode(prompt[1:], decode_special_tokens=True) for prompt in texts.prompts[:8]],
        max_new_tokens=NEW_TOKENS,
        gen_settings=ExLlamaV2Sampler.Settings.greedy(),
        stop_conditions=[texts.eos],
        add_bos=True,
        encode_special_tokens=True,
        completion_only=True,
    )
    ends = [tokens[:-1] if tokens[-1] == texts.eos else tokens for tokens in written_on_cpu[:8]]
    assert written == [tokenizer.decode(tokens) for tokens in ends]


def test_tokens_in_half_precision_are_those_of_the_cpu(texts: Texts, written_on_cpu: list[torch.Tensor]) -> None:
    found = log_probabilities(load(texts, torch.bfloat16), texts, written_on_cpu, ExLlamaV2Cache)
    same = torch.cat([row.argmax(dim=1) == text for row, text in zip(found, written_on_cpu, strict=True)])
    print(f"{len(same)} tokens, {float(same.float().mean()):.4%} the same")
    assert float(same.float().mean()) >= 0.99


def test_quantised_caches_keep_the_perplexity(texts: Texts) -> None:
    model = load(texts, torch.float16)
    perplexities = {}
    for kind in (ExLlamaV2Cache, ExLlamaV2Cache_Q8, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q4):
        found = log_probabilities(model, texts, texts.records, kind)
        likely = [row.gather(1, text.unsqueeze(1)) for row, text in zip(found, texts.records, strict=True)]
        perplexities[kind] = float((-torch.cat(likely).mean()).exp())
    print({kind.__name__: value for kind, value in perplexities.items()})
    exact = perplexities[ExLlamaV2Cache]
    assert exact < 2  # the records are likely to the model
    for kind, most in ((ExLlamaV2Cache_Q8, 1e-3), (ExLlamaV2Cache_Q6, 2e-2), (ExLlamaV2Cache_Q4, 2e-2)):
        assert abs(perplexities[kind] / exact - 1) < most
