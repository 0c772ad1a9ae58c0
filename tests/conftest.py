"""Shared by all tests: options for random samples, the marker ``gpu``, and a tiny model with its tokenizer."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import constrain
from constrain.kernels import cuda

if TYPE_CHECKING:
    from constrain import ExLlamaV2, ExLlamaV2Tokenizer

# The models are tiny: more threads would only wait for one another.
torch.set_num_threads(1)

CORPUS = [
    '{"name": "Ada", "age": 36, "tags": ["red", "green"]} {"a": 1} true false null',
    "yes, please; no, thanks. Yes please! The quick brown fox jumps over the lazy dog.",
    "hello hell he hello there, help the héros of the naïve café, 12 345 67.8 - 2024-05-06",
] * 8
HIDDEN, HEADS, LAYERS = 32, 4, 2

TALLY = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("samples", "random samples")
    group.addoption("--samples", type=float, default=1, metavar="N", help="take N times as many random samples")
    group.addoption("--seed", type=int, default=0, help="the first seed of random samples, and that of every test")
    parser.addoption("--cluster", action="store_true", help="run the tests that start a cluster, which take minutes")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Counter()
    hypothesis.settings.register_profile("reproducible", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("reproducible")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`seeds(n)` gives a test n seeds, more or fewer as the options say."""
    if marker := metafunc.definition.get_closest_marker("seeds"):
        first = metafunc.config.getoption("--seed")
        count = max(1, round(marker.args[0] * metafunc.config.getoption("--samples")))
        metafunc.parametrize("seed", range(first, first + count))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed what requests without a seed draw from: a test gives the same result alone, in any order and every time."""
    seed = item.config.getoption("--seed")
    random.seed(seed)
    torch.manual_seed(seed)
    if item.get_closest_marker("gpu") and not (torch.cuda.is_available() and cuda.module):
        pytest.skip("no CUDA device, or no kernels for it")
    if item.get_closest_marker("cluster") and not item.config.getoption("--cluster"):
        pytest.skip("starts a cluster: run with --cluster")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for what, count in sorted(config.stash[TALLY].items()):
        terminalreporter.write_line(f"{count:,} {what}")


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Counter[str]:
    """Counts what random tests have compared, for the last lines of the output."""
    return pytestconfig.stash[TALLY]


def train_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def random_weights(vocab_size: int) -> dict[str, torch.Tensor]:
    shapes = {"model.embed_tokens.weight": (vocab_size, HIDDEN), "lm_head.weight": (vocab_size, HIDDEN)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        shapes |= {f"{name}self_attn.{p}_proj.weight": (HIDDEN, HIDDEN) for p in "qkvo"}
        shapes |= {f"{name}mlp.{p}_proj.weight": (2 * HIDDEN, HIDDEN) for p in ("gate", "up")}
        shapes |= {f"{name}mlp.down_proj.weight": (HIDDEN, 2 * HIDDEN)}
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
    norms = [
        "model.norm",
        *(f"model.layers.{i}.{n}_layernorm" for i in range(LAYERS) for n in ("input", "post_attention")),
    ]
    return weights | {f"{name}.weight": torch.ones(HIDDEN) for name in norms}


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a Llama model with two layers."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = train_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    specials = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(specials))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(random_weights(tokenizer.get_vocab_size()), folder / "model.safetensors")
    return folder


@pytest.fixture(scope="session")
def tiny_model(tiny_dir: Path) -> ExLlamaV2:
    """The model, loaded."""
    model = constrain.ExLlamaV2(constrain.ExLlamaV2Config(str(tiny_dir)))
    model.load()
    return model


@pytest.fixture(scope="session")
def long_model(tiny_dir: Path) -> ExLlamaV2:
    """The tiny model, for sequences of up to 4096 tokens."""
    config = constrain.ExLlamaV2Config(str(tiny_dir))
    config.max_seq_len = 4096
    model = constrain.ExLlamaV2(config)
    model.load()
    return model


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model: ExLlamaV2) -> ExLlamaV2Tokenizer:
    """Its tokenizer."""
    return constrain.ExLlamaV2Tokenizer(tiny_model.config)
