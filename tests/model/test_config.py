from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import FAMILIES, Family

from constrain.errors import ConfigError, GenerationError, ModelError
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config


def write(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_what_is_read(llama: Any) -> None:
    config = ExLlamaV2Config(llama.folder)
    assert (config.architecture, config.arch.arch_string) == ("LlamaForCausalLM", "LlamaForCausalLM")
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (99, 48, 80)
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (3, 4, 2)
    assert (config.num_key_value_groups, config.head_dim, config.max_seq_len) == (2, 12, 64)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 0)
    assert config.generation_config["eos_token_id"] == [2]
    assert config.tensor_file_map["model.norm.weight"] == str(llama.folder / "model.safetensors")
    assert config.vision_model_type is None


def test_a_config_prepared_later(llama: Any) -> None:
    config = ExLlamaV2Config()
    config.model_dir = str(llama.folder)
    config.prepare(no_tensors=True)
    assert config.hidden_size == 48 and config.tensor_file_map == {}
    with pytest.raises(ModelError, match="no_tensors"):
        ExLlamaV2(config).load()


def test_low_memory_settings(llama: Any) -> None:
    config = ExLlamaV2Config(llama.folder)
    config.set_low_mem()
    assert (config.max_input_len, config.max_attention_size, config.max_output_len) == (1024, 1024**2, None)
    config.max_output_len = 4096
    config.set_low_mem()
    assert config.max_output_len == 1024
    config.arch_compat_overrides()


def test_several_end_tokens_keep_the_first(llama_copy: Any) -> None:
    llama_copy.config["eos_token_id"] = [7, 8]
    assert ExLlamaV2Config(llama_copy.write()).eos_token_id == 7


def test_numbers_may_be_written_either_way(llama_copy: Any) -> None:
    llama_copy.config |= {"hidden_size": 48.0, "rms_norm_eps": 1}
    config = ExLlamaV2Config(llama_copy.write())
    assert isinstance(config.hidden_size, int) and isinstance(config.norm_eps, float)


def test_missing_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_dir is not set"):
        ExLlamaV2Config().prepare()
    with pytest.raises(ConfigError, match="no such folder"):
        ExLlamaV2Config(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        ExLlamaV2Config(tmp_path)
    with pytest.raises(ModelError, match="not prepared"):
        ExLlamaV2(ExLlamaV2Config())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "must hold a JSON object, found list"),
        ('{"rms_norm_eps": NaN}', "NaN is not a JSON number"),
        ('{"rope_theta": -Infinity}', "-Infinity is not a JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"hidden_size": ' + "9" * 10_000 + "}", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, text: str | bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError, match=message):
        ExLlamaV2Config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "unknown architecture 'GPT2LMHeadModel'; the nearest"),
        ({"architectures": ["Qwen3NextForCausalLM"]}, "the nearest known one is Qwen3ForCausalLM"),
        (
            {"architectures": ["Granite7ForCausalLM"]},
            "the nearest known one is GraniteForCausalLM. Supported",
        ),
        ({"architectures": []}, "architectures must be a list of one name"),
        ({"architectures": "LlamaForCausalLM"}, "architectures must be a list of one name"),
        ({"vocab_size": None}, "vocab_size: missing"),
        ({"vocab_size": 10**12}, "vocab_size: must be from 1 to"),
        ({"hidden_size": -48}, "hidden_size: must be from 1 to"),
        ({"hidden_size": "48"}, "hidden_size: must be an integer, not '48'"),
        ({"hidden_size": True}, "hidden_size: must be an integer"),
        ({"hidden_size": 48.5}, "hidden_size: must be an integer"),
        ({"hidden_size": 50, "head_dim": None}, "hidden_size: 50 is not a multiple"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: must be from 1 to 4096"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide"),
        ({"head_dim": 11}, "head_dim: 11 rotated features"),
        ({"rms_norm_eps": 0}, "rms_norm_eps: must be above 0"),
        ({"rms_norm_eps": 1e308 * 10}, "is not a JSON number"),
        ({"max_position_embeddings": 10**30}, "max_position_embeddings: must be from 1 to"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: must be true or false"),
        ({"hidden_act": "relu"}, "hidden_act: 'relu' is not what LlamaForCausalLM has"),
        ({"eos_token_id": "2"}, "eos_token_id/0: must be an integer"),
        ({"rope_parameters": {"rope_type": "ntk"}}, r"rope_parameters\.rope_type: unknown method 'ntk'"),
        ({"rope_parameters": 7}, "rope_parameters: must be an object"),
        ({"rope_parameters": {"factor": 2.0}}, r"rope_parameters\.rope_type: missing; known methods are default,"),
        ({"rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0}}, r"rope_parameters\.alpha: is not supported"),
        ({"is_causal": False}, "is_causal: False is not supported"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention: True is not supported"),
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types: must say full_attention for every layer"),
        ({"rope_parameters": {"rope_type": "linear"}}, r"rope_parameters\.factor: missing"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0}}, r"rope_parameters\.factor: must be above 0"),
        (
            {"rope_parameters": None, "rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": []}},
            r"rope_scaling\.short_factor: must be a list of 6 numbers",
        ),
        (
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, "x"], "long_factor": []}},
            r"rope_parameters\.short_factor/5: must be a number",
        ),
    ],
)
def test_bad_values_are_named(llama_copy: Any, changes: dict[str, Any], message: str) -> None:
    llama_copy.config |= changes
    with pytest.raises(ConfigError, match=message):
        ExLlamaV2Config(llama_copy.write())


@pytest.mark.parametrize(
    "types", [["full_attention"], ["full_attention"] * 2 + ["linear_attention"], "full", [1, 2, 3]]
)
def test_layer_types_must_say_something_for_every_layer(
    types: Any, checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    source = json.loads((checkpoint("qwen2").folder / "config.json").read_text())
    config = ExLlamaV2Config()
    config.model_dir = str(write(tmp_path, source | {"layer_types": types}))
    with pytest.raises(ConfigError, match="layer_types: must"):
        config.prepare(no_tensors=True)


@pytest.mark.parametrize("name", ["llama_yarn", "gemma3", "phi3_longrope", "qwen2_window", "glm4_moe", "llama4"])
def test_no_value_of_any_key_does_anything_but_a_clear_error(
    name: str, checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    """Every key, also inside objects, with every kind of nonsense: it loads, or it is a ModelError."""
    source = json.loads((checkpoint(name).folder / "config.json").read_text())
    nonsense = [None, True, -1, 0, 0.5, 1e300, 2**62, 10**400, "", "x", [], [None], {}, {"a": []}]
    refused = 0

    def variants(value: Any) -> Any:
        yield from nonsense
        for key in value if isinstance(value, dict) else ():
            yield from (value | {key: inner} for inner in variants(value[key]))

    for key, value in source.items():
        for replaced in variants(value):
            write(tmp_path, source | {key: replaced})
            config = ExLlamaV2Config()
            config.model_dir = str(tmp_path)
            try:
                config.prepare(no_tensors=True)
                ExLlamaV2(config)
            except ModelError:
                refused += 1
    assert refused > 100


def test_older_configs_spell_rope_differently(llama_copy: Any, checkpoint: Callable[[str], Any]) -> None:
    for name in ("llama_linear", "llama_llama3", "llama_yarn", "phi3_longrope"):
        newer = ExLlamaV2Config(checkpoint(name).folder)
        source = json.loads((checkpoint(name).folder / "config.json").read_text())
        scaling = source.pop("rope_parameters")
        source |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling}
        scaling["type"] = {"longrope": "su"}.get(kind := scaling.pop("rope_type"), kind)
        older = ExLlamaV2Config()
        older.model_dir = str(write(llama_copy.folder, source))
        older.prepare(no_tensors=True)
        assert older.rope == newer.rope and older.rope.method is not None


#: Keys without which some configs of transformers are not complete.
_COMPLETE: dict[str, dict[str, Any]] = {
    "Glm4Moe": {"head_dim": 128},
    "DeepseekV2": {"num_experts_per_tok": 6},
    "Dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "GraniteMoeHybrid": {
        "layer_types": ["full_attention"] * 32,
        "num_local_experts": 0,
        "time_step_limit": None,
    },
}
#: Keys whose absence is an error or changes no output, and one of which the default of transformers has changed.
_OWN_DEFAULTS = {"architectures", "bos_token_id", "eos_token_id", "pad_token_id", "max_position_embeddings"}
_CHANGED_DEFAULTS = {"Glm": {"attention_bias"}, "Glm4": {"attention_bias"}}


@pytest.mark.parametrize("name", sorted({family.name for family in FAMILIES.values()}))
def test_what_a_config_leaves_out_is_as_in_transformers(name: str, tmp_path: Path) -> None:
    architecture = {"Gemma3": "Gemma3ForCausalLM", "Llama4Text": "Llama4ForCausalLM"}.get(name, f"{name}ForCausalLM")
    completed = _COMPLETE.get(name, {})
    whole = Family(name).kind().to_dict() | {"architectures": [architecture]} | completed

    def read(data: dict[str, Any]) -> dict[str, Any]:
        config = ExLlamaV2Config()
        config.model_dir = str(write(tmp_path, data))
        config.prepare(no_tensors=True)
        return vars(config)

    expected = read(whole)
    for key in whole.keys() - completed.keys() - _OWN_DEFAULTS - _CHANGED_DEFAULTS.get(name, set()):
        try:
            assert read({other: value for other, value in whole.items() if other != key}) == expected, key
        except ConfigError as error:
            assert f"{key}: missing" in str(error)


@pytest.mark.parametrize("name", ["qwen2_window", "qwen2_moe_window", "gemma2", "gemma3", "smollm3_window", "exaone4"])
def test_older_configs_do_not_list_layer_types(name: str, checkpoint: Callable[[str], Any], tmp_path: Path) -> None:
    source = json.loads((checkpoint(name).folder / "config.json").read_text())
    listed = source.pop("layer_types")
    config = ExLlamaV2Config()
    config.model_dir = str(write(tmp_path, source | {"sliding_window_pattern": 2}))
    config.prepare(no_tensors=True)
    assert config.sliding_layers == [kind == "sliding_attention" for kind in listed]
    assert len({*config.sliding_layers}) == 2


@pytest.mark.parametrize(
    ("pattern", "kinds"), [("LLLG", "LLLGLG"), ("LG", "LGLGLG"), ("L", "LLLLLG"), ("GL", "GLGLGG"), (4, "LLLGLL")]
)
def test_a_pattern_of_windows_may_be_letters(
    pattern: str | int, kinds: str, checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    """The last layer has no window, whatever the letters say."""
    source = json.loads((checkpoint("exaone4").folder / "config.json").read_text())
    del source["layer_types"]
    config = ExLlamaV2Config()
    config.model_dir = str(write(tmp_path, source | {"sliding_window_pattern": pattern, "num_hidden_layers": 6}))
    config.prepare(no_tensors=True)
    assert config.sliding_layers == config.rotary_layers == [letter == "L" for letter in kinds]
    for wrong in ("", "LLX", [4]):
        write(tmp_path, source | {"sliding_window_pattern": wrong})
        with pytest.raises(ConfigError, match="sliding_window_pattern: must be an integer"):
            config.prepare(no_tensors=True)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("mistral_window", ["sliding_attention", "full_attention", "sliding_attention"]),
        ("mixtral", ["full_attention"] * 3),
        ("qwen3_moe", ["full_attention", "sliding_attention", "full_attention"]),
    ],
)
def test_families_whose_layers_are_alike_have_no_other_types(
    name: str, types: list[str], checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    source = json.loads((checkpoint(name).folder / "config.json").read_text())
    if name == "qwen3_moe":
        source |= {"use_sliding_window": True, "sliding_window": 5}
    config = ExLlamaV2Config()
    config.model_dir = str(write(tmp_path, source | {"layer_types": ["sliding_attention"] * 3}))
    config.prepare(no_tensors=True)
    assert (config.sliding_layers, config.sliding_window) == ([True] * 3, 5)
    write(tmp_path, source | {"layer_types": types})
    with pytest.raises(ConfigError, match=r"layer_types: every layer of a .* has sliding_attention"):
        config.prepare(no_tensors=True)


def test_early_configs_of_gemma_have_another_name_for_its_activation(
    checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    config = ExLlamaV2Config()
    for name in ("gemma", "starcoder2"):
        source = json.loads((checkpoint(name).folder / "config.json").read_text())
        source.pop("hidden_activation", None)
        config.model_dir = str(write(tmp_path, source | {"hidden_act": "gelu"}))
        if name == "gemma":
            config.prepare(no_tensors=True)
    with pytest.raises(ConfigError, match="hidden_act: 'gelu' is not what Starcoder2ForCausalLM has"):
        config.prepare(no_tensors=True)


def test_mimo_is_qwen2_with_layers_that_predict_further(copy_of: Callable[[str], Any], ids: torch.Tensor) -> None:
    copy = copy_of("qwen2")
    copy.config["architectures"] = ["MiMoForCausalLM"]
    copy.tensors["model.mtp_layers.0.final_layernorm.weight"] = torch.ones(48)
    model = ExLlamaV2(ExLlamaV2Config(copy.write()))
    model.load()
    assert model.forward(ids).isfinite().all()


def test_older_gemma_3_configs(checkpoint: Callable[[str], Any], tmp_path: Path) -> None:
    source = json.loads((checkpoint("gemma3").folder / "config.json").read_text())
    for key in ("rope_parameters", "layer_types"):
        del source[key]
    source |= {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 2}
    config = ExLlamaV2Config()
    config.model_dir = str(write(tmp_path, source))
    config.prepare(no_tensors=True)
    assert (config.rope.theta, config.rope.factor, config.rope.method) == (1_000_000, 8, "linear")
    assert (config.rope_local.theta, config.rope_local.method) == (10_000, None)
    assert config.sliding_layers == [True, False, True]


def test_compute_dtype_is_the_users_to_choose(llama: Any) -> None:
    model = llama.load(compute_dtype=torch.bfloat16)
    logits = model.forward(torch.tensor([[1, 5, 9]]))
    assert logits.dtype == torch.bfloat16
    expected = llama.logits(torch.tensor([[1, 5, 9]]))
    torch.testing.assert_close(logits[..., :99].float(), expected, atol=0.3, rtol=0.1)


def test_float16_has_no_range_for_the_states_of_gemma(checkpoint: Callable[[str], Any]) -> None:
    for name, chosen in (("gemma", torch.bfloat16), ("gemma2", torch.bfloat16), ("llama", torch.float16)):
        model = ExLlamaV2(ExLlamaV2Config(checkpoint(name).folder))
        model.config.compute_dtype = torch.float16
        model.choose_dtype()
        assert model.compute_dtype is chosen


def test_dynamic_scaling_is_read_as_far_as_it_changes_nothing(llama_copy: Any) -> None:
    llama_copy.config["rope_parameters"] = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    config = ExLlamaV2Config(llama_copy.write())
    assert config.max_seq_len == 64
    config.max_seq_len = 65
    with pytest.raises(ConfigError, match="max_seq_len is 65; LlamaForCausalLM is supported up to 64 tokens"):
        config.check()
    llama_copy.config["rope_parameters"]["original_max_position_embeddings"] = 32
    (llama_copy.folder / "config.json").write_text(json.dumps(llama_copy.config))
    config.prepare()
    assert config.max_seq_len == 32


def test_no_pass_goes_beyond_the_length_that_is_read(checkpoint: Callable[[str], Any]) -> None:
    model = checkpoint("llama_dynamic").load()
    ids = torch.full((1, 65), 5)
    cache = ExLlamaV2Cache(model, max_seq_len=96)
    message = "the length of the sequence is 65; LlamaForCausalLM is supported up to 64 tokens"
    with pytest.raises(GenerationError, match=message):
        model.forward(ids)
    model.forward(ids[:, :64], cache)
    with pytest.raises(GenerationError, match=message):
        model.forward(ids[:, 64:], cache)


def test_llama_4_ends_where_its_attention_changes(checkpoint: Callable[[str], Any], tmp_path: Path) -> None:
    """In chunks, or at another temperature, whichever comes first."""
    made = checkpoint("llama4")
    assert ExLlamaV2Config(made.folder).max_seq_len == 64
    source = json.loads((made.folder / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(made.folder / "model.safetensors")
    for changes, length in (
        ({"attention_chunk_size": 32}, 32),
        ({"floor_scale": 32}, 31),
        ({"floor_scale": 32, "attn_temperature_tuning": False}, 64),
    ):
        config = ExLlamaV2Config(write(tmp_path, source | changes))
        assert config.max_seq_len == length
    config.max_seq_len = 8193
    with pytest.raises(ConfigError, match="max_seq_len is 8193; Llama4ForCausalLM is supported up to 8192 tokens"):
        config.check()
