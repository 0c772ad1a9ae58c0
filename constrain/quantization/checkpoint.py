"""Files of a converted model besides the weights: config, index, and copies."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from constrain.model import ExLlamaV2Config
from constrain.model.tensor_files import INDEX_FILE
from constrain.quantization.layer_weights import Rounding
from constrain.quantization.output_folder import RECORD_FILE, OutputFolder
from constrain.tokenizer.chat import TEMPLATES_FOLDER
from constrain.tokenizer.files import read_json_object

#: Endings of weights and of what is made from them.
_OWN = {"config.json", RECORD_FILE}
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ckpt", ".lock", ".partial"}


def quantization_config(
    rounding: Rounding, head: tuple[str, Rounding] | None, ignored: Sequence[str]
) -> dict[str, Any]:
    """Return the ``quantization_config`` of compressed-tensors.

    Args:
        rounding: of the projections.
        head: name of the head, and its rounding, if it is quantised.
        ignored: names of the other projections that are not quantised.
    """
    groups = {"group_0": _group("Linear", rounding)}
    if head:
        groups["group_1"] = _group(head[0], head[1])
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": [*ignored],
    }


def _group(target: str, rounding: Rounding) -> dict[str, Any]:
    weights = {
        "num_bits": rounding.bits,
        "type": "int",
        "symmetric": True,
        "strategy": "channel" if rounding.group_size is None else "group",
        "group_size": rounding.group_size,
        "dynamic": False,
        "actorder": "weight" if rounding.activation_order else None,
    }
    return {"targets": [target], "weights": weights, "input_activations": None, "output_activations": None}


def write_index(output: OutputFolder) -> None:
    """Write the index, which names the file of each tensor."""
    names = {key: file for file, entry in output.files.items() for key in entry["tensors"]}
    size = sum(entry["bytes"] for entry in output.files.values())
    output.save_json(INDEX_FILE, {"metadata": {"total_size": size}, "weight_map": dict(sorted(names.items()))})


def copy_others(source: Path, output: OutputFolder) -> None:
    """Copy the files beside the weights: tokenizer, templates, settings of generation, and texts."""
    for file in sorted([*source.iterdir(), *(source / TEMPLATES_FOLDER).glob("*.jinja")]):
        is_weights = file.suffix in _WEIGHTS or file.name.endswith(".index.json")
        if file.is_file() and not is_weights and not file.name.startswith(".") and file.name not in _OWN:
            with output.replaced(str(file.relative_to(source))) as partial:
                partial.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, partial)


def write_config(config: ExLlamaV2Config, output: OutputFolder, quantization: Mapping[str, Any]) -> None:
    """Write ``config.json``, without which a folder is no model: the last of all files."""
    data = read_json_object(Path(config.model_config))
    output.save_json("config.json", data | {"quantization_config": quantization})
