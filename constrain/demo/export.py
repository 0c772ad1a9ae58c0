"""Export of the network as a model folder in the format of Llama checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from constrain.demo.batches import Codec
from constrain.demo.network import Network, Shape


def export(network: Network, folder: Path) -> None:
    """Write ``model.safetensors`` (bfloat16) and the config files to ``folder``, which has the tokenizer."""
    codec = Codec(folder)
    state = network.state_dict()
    tensors = {name: value.detach().to("cpu", torch.bfloat16).contiguous() for name, value in state.items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
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
        **special,
    }
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", {"do_sample": False, **special})


def restore(folder: Path) -> Network:
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
    network = Network(shape)
    network.load_state_dict(load_file(folder / "model.safetensors"))
    return network


def _write(path: Path, data: dict[str, object]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
