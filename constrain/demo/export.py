"""Export of the network as a model folder in the format of Llama checkpoints, with weights of eight bits.

Matrices are stored as int8 with a scale for each row, in the ``int-quantized`` form of compressed-tensors.
``python -m constrain.demo.export FOLDER`` writes the built-in model without quantisation, for libraries that read no
quantised embeddings.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import torch
from safetensors.torch import load_file, save_file

from constrain.demo import model_dir
from constrain.demo.batches import Codec
from constrain.demo.network import Network, Shape

_QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": [],
    "config_groups": {
        "group_0": {
            "targets": ["Linear", "Embedding"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False},
        }
    },
}


def export(network: Network, folder: Path) -> None:
    """Write ``model.safetensors`` and the config files to ``folder``, which has the tokenizer."""
    codec = Codec(folder)
    state: dict[str, torch.Tensor] = {}
    for name, value in network.state_dict().items():
        state |= quantized(name, value.detach().cpu()) if value.ndim == 2 else {name: value.detach().cpu().bfloat16()}
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    special = {"bos_token_id": codec.bos, "eos_token_id": codec.eos, "pad_token_id": codec.pad}
    shape = network.shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "quantization_config": _QUANTIZATION,
        **special,
    }
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", {"do_sample": False, **special})


def quantized(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Round a matrix to eight bits, and return the tensors of its checkpoint.

    The scale of a row is its largest magnitude over 127, rounded up to bfloat16, so that scaling back is exact.
    """
    limit = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    scale = limit.bfloat16()
    scale = torch.where(scale.float() < limit, torch.nextafter(scale, torch.full_like(scale, torch.inf)), scale)
    whole = (weight / scale.float()).round().clamp(-127, 127).to(torch.int8)
    return {name: whole, f"{name}_scale": scale}


def dequantized(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint as float32."""
    scaled = {name: value.float() * state.get(f"{name}_scale", torch.ones(1)).float() for name, value in state.items()}
    return {name: value for name, value in scaled.items() if not name.endswith("_scale")}


def write_dense(folder: Path, source: Path | None = None) -> Path:
    """Write the built-in model, or the one that :func:`export` wrote to ``source``, to ``folder``, as float32."""
    source = source or model_dir()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(source / name, folder)
    save_file(
        dequantized(load_file(source / "model.safetensors")),
        str(folder / "model.safetensors"),
        metadata={"format": "pt"},
    )
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    del config["quantization_config"]
    _write(folder / "config.json", config | {"torch_dtype": "float32"})
    return folder


def restore(folder: Path, dropout: float = 0.0) -> Network:
    """Load the network that :func:`export` wrote to ``folder``, with float32 parameters."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = Shape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        mlp=config["intermediate_size"],
        context=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
    )
    network = Network(shape, dropout)
    network.load_state_dict(dequantized(load_file(folder / "model.safetensors")))
    return network


def _write(path: Path, data: dict[str, object]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the built-in model to FOLDER without quantisation, as float32."""
    write_dense(folder)


if __name__ == "__main__":
    main()
