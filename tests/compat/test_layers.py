"""Models layer by layer, as exllamav2's own test_inference.py and model_diff.py run them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import load_file, save_file

from constrain.compat.exllamav2.datasets import get_tokens
from constrain.compat.exllamav2.layers import AttentionParams, DeviceName, adopt
from constrain.errors import ArgumentError, ModelError
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.quantization import quantize
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Perplexity of a model, and its top tokens, with one layer in memory at a time; two models give their difference too.
PROGRAM = """
import argparse
import json
import math

import torch
from exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer, model_init
from exllamav2.attn import ExLlamaV2Attention
from exllamav2.conversion.quantize import list_live_tensors
from exllamav2.conversion.tokenize import get_tokens
from exllamav2.mlp import ExLlamaV2MLP
from exllamav2.moe_mlp import ExLlamaV2MoEMLP
from exllamav2.parallel_decoder import ExLlamaV2ParallelDecoder

parser = argparse.ArgumentParser()
parser.add_argument("-ed", "--eval_dataset")
parser.add_argument("-mb", "--model_b")
model_init.add_args(parser)
args = parser.parse_args()
model_init.check_args(args)
model, tokenizer = model_init.init(args, skip_load=True, allow_auto_split=True, benchmark=True, max_output_len=None)
other_config = ExLlamaV2Config()
other_config.model_dir = args.model_b
other_config.prepare()
other = ExLlamaV2(other_config)
tokens = get_tokens(3, 24, args.eval_dataset, tokenizer)
params = ExLlamaV2Attention.Params(2, 24, 0, None, None)
report = {"layers": [], "kinds": [], "errors": []}

def streamed(model):
    model.load(lazy=True)
    for index, module in enumerate(model.modules):
        module.set_device_idx(-1 if index == 0 else 0)
    first = model.modules[0]
    first.load()
    states = first.forward(tokens)
    first.unload()
    yield first, states.clone()
    for module in model.modules[1:]:
        module.load()
        parts = (states[:2], states[2:])
        parts = [module.forward(x, cache=None, attn_params=params, past_len=0, loras=None) for x in parts]
        states = torch.cat(parts).cpu()
        module.unload()
        yield module, states.clone()

def perplexity(logits):
    found = logits[:, :-1].to(model.modules[-1].device()).float().log_softmax(-1).gather(-1, tokens[:, 1:, None])
    return math.exp(-found.mean().item())

with torch.inference_mode():
    for (module, states), (_, others) in zip(streamed(model), streamed(other)):
        report["layers"].append(module.key)
        report["kinds"].append(module.name)
        report["errors"].append(float((others.float() - states.float()).norm() / states.float().norm()))
    report["perplexity"] = [perplexity(logits) for logits in (states, others)]
    p, q = (logits.float().softmax(-1) for logits in (states, others))
    report["divergence"] = torch.nn.functional.kl_div(torch.log(q + 1e-10), p, reduction="none").sum(-1).mean().item()
    report["is model"] = isinstance(model, ExLlamaV2)
    report["is attention"] = [isinstance(module, ExLlamaV2Attention) for module in model.modules]
    mlps = (ExLlamaV2MLP, ExLlamaV2MoEMLP, ExLlamaV2ParallelDecoder)
    report["is mlp"] = [isinstance(module, mlps) for module in model.modules]
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "texts.parquet"
    texts = [f"The quick brown fox {number} jumps over the lazy dog, " for number in range(20)]
    parquet.write_table(pa.table({"text": texts, "number": list(range(20))}), path)
    return path


@pytest.fixture
def model(tiny_dir: Path) -> Any:
    model = ExLlamaV2(ExLlamaV2Config(tiny_dir))
    adopt(model)
    return model


IDS = torch.arange(40).view(2, 20)


def test_a_program_runs_two_models_layer_by_layer(tiny_dir: Path, dataset: Path, tmp_path: Path) -> None:
    quantize(tiny_dir, tmp_path / "w4", bits=4)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "constrain.compat.exllamav2", str(tmp_path / "program.py")]
    options = ["-m", str(tiny_dir), "-mb", str(tmp_path / "w4"), "-ed", str(dataset)]
    run = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    report = json.loads(run.stdout.splitlines()[-1])
    assert report["kinds"] == ["Embedding", "Attention", "MLP", "Attention", "MLP", "RMSNorm", "Linear"]
    assert report["is model"]
    assert report["is attention"] == [kind == "Attention" for kind in report["kinds"]]
    assert report["is mlp"] == [kind == "MLP" for kind in report["kinds"]]
    assert report["layers"][1:3] == ["model.layers.0.self_attn", "model.layers.0.mlp"]
    assert report["errors"][0] == 0 and all(0 < error < 0.5 for error in report["errors"][1:])
    config = ExLlamaV2Config(tiny_dir)
    tokens = get_tokens(3, 24, dataset, ExLlamaV2Tokenizer(config))
    wanted = []
    for folder in (tiny_dir, tmp_path / "w4"):
        whole = ExLlamaV2(ExLlamaV2Config(folder))
        whole.load()
        found = whole.forward(tokens)[:, :-1, : config.vocab_size].log_softmax(-1)
        wanted.append(math.exp(-found.gather(-1, tokens[:, 1:, None]).mean()))
    assert report["perplexity"] == pytest.approx(wanted, rel=1e-4)
    assert 0 < report["divergence"] < 1


def test_layers_are_loaded_and_released(model: Any) -> None:
    model.load()
    logits = model.forward(IDS)
    for module in model.modules:
        module.unload()
    assert all(linear.weight.numel() == 0 for _, linear in model.modules[1].submodules())
    assert model.modules_dict["model.layers.0.mlp.up_proj"] is model.modules[2].mlp.gate_up
    for module in model.modules:
        module.load()
    assert torch.equal(model.forward(IDS), logits)


def test_a_layer_takes_the_context_of_a_model_or_the_arguments_of_exllamav2(model: Any) -> None:
    model.load()
    states = model.modules[0].forward(IDS)
    mask = torch.zeros(2, 20).half()
    mask[1, :5] = -65504
    plain = model.modules[1].forward(states)
    assert torch.equal(model.modules[1].forward(states, None, past_len=0, unknown=1), plain)
    masked = model.modules[1].forward(states, attn_params=AttentionParams(2, 20, 0, mask))
    assert torch.allclose(masked[0], plain[0], atol=1e-5) and not torch.allclose(masked[1, 10:], plain[1, 10:])


def test_layers_of_another_model(tiny_dir: Path, tmp_path: Path, model: Any) -> None:
    other = tmp_path / "other"
    quantize(tiny_dir, other, bits=4)
    model.load()
    config, extra = model.config, ExLlamaV2Config(other)
    for key in [key for key in config.tensor_file_map if key.startswith("model.layers.1.")]:
        del config.tensor_file_map[key]
    config.tensor_file_map.update(
        (key, file) for key, file in extra.tensor_file_map.items() if key.startswith("model.layers.1.")
    )
    before = model.forward(IDS)
    for module in model.modules[3:5]:
        module.reload()
    whole = ExLlamaV2(extra)
    whole.load()
    whole.modules[1:3] = model.modules[1:3]
    assert torch.allclose(model.forward(IDS), whole.forward(IDS), atol=1e-5)
    assert not torch.allclose(model.forward(IDS), before, atol=1e-2)


def test_a_tied_head_has_the_weight_of_an_embedding_that_is_not_loaded(tiny_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tied"
    folder.mkdir()
    weights = load_file(tiny_dir / "model.safetensors")
    save_file(
        {name: weight for name, weight in weights.items() if name != "lm_head.weight"}, folder / "model.safetensors"
    )
    config = json.loads((tiny_dir / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    model: Any = ExLlamaV2(ExLlamaV2Config(folder))
    adopt(model)
    model.load(lazy=True)
    model.modules[-1].load()
    assert model.modules[0].weight.numel() == 0
    embedding = weights["model.embed_tokens.weight"]
    assert torch.equal(model.modules[-1].weight[: len(embedding)], embedding)


def test_weights_of_a_lower_rank(model: Any) -> None:
    model.load()
    model.modules[2].rank_reduce(1.0)
    whole = model.modules[2].mlp.gate_up.weight
    gate = whole[: len(whole) // 2].clone()
    model.modules[2].rank_reduce(0.25)
    reduced = model.modules[2].mlp.gate_up.weight[: len(gate)]
    left, values, right = torch.linalg.svd(gate, full_matrices=False)
    assert torch.linalg.matrix_rank(reduced) == 8
    assert torch.allclose(reduced, (left[:, :8] * values[:8]) @ right[:8], atol=1e-4)


def test_devices(model: Any) -> None:
    head = model.modules[-1]
    assert head.device() == "cpu" and (head.device.type, head.device_idx) == ("cpu", -1)
    assert torch.zeros(1, device=head.device).device == head.device
    head.set_device_idx(None)
    assert head.device == torch.device("cpu") == head.device
    assert DeviceName("cuda:1").index == 1 and {DeviceName("cuda:1"): 1}[torch.device("cuda", 1)] == 1


def test_a_layer_without_its_model_says_so(tiny_dir: Path) -> None:
    model: Any = ExLlamaV2(ExLlamaV2Config(tiny_dir))
    adopt(model)
    layer = model.modules[1]
    del model
    with pytest.raises(ModelError, match=r"the model of the layer model\.layers\.0\.self_attn is no longer there"):
        layer.load()


def test_tokens_of_a_dataset(tiny_dir: Path, dataset: Path, tmp_path: Path) -> None:
    tokenizer = ExLlamaV2Tokenizer(ExLlamaV2Config(tiny_dir))
    tokens = get_tokens(2, 10, dataset, tokenizer)
    assert tokens.shape == (2, 10)
    first = tokenizer.encode("The quick brown fox 0 jumps over the lazy dog,  0")[0]
    assert torch.equal(tokens.flatten()[: len(first)], first[:20])
    with pytest.raises(ArgumentError, match=r"has \d+ tokens, and 99 rows of 100 were asked for"):
        get_tokens(99, 100, dataset, tokenizer)
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(ArgumentError, match="cannot be read as Parquet"):
        get_tokens(1, 1, tmp_path / "a.parquet", tokenizer)
