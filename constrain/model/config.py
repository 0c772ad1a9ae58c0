"""``ExLlamaV2Config``: the config of a model folder, and settings of the user."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from constrain.arguments import check_count, check_number, check_type
from constrain.errors import ConfigError, ConstrainError, WeightsError
from constrain.kernels import MAX_FUSED_DIM
from constrain.model.architecture import ARCHITECTURES, Architecture
from constrain.model.config_reader import ConfigReader
from constrain.model.expert_config import ExpertConfig, read_experts
from constrain.model.formats import Quantization, read_quantization
from constrain.model.latent_config import LatentConfig, read_latent
from constrain.model.layout import ModelLayout, model_layout
from constrain.model.rope import read_axes, read_rope
from constrain.model.stored_layout import as_stored, check_unused
from constrain.model.tensor_files import TensorFiles
from constrain.model.token_config import MAX_VOCAB, config_path, first_token, read_generation_config
from constrain.model.traits import QKNorm
from constrain.tokenizer.files import read_json_object

_log = logging.getLogger(__name__)

# Far above any model, and low enough that no product of two of them overflows.
_MAX_WIDTH = 1 << 20
_MAX_LAYERS = 1 << 12
_MAX_LENGTH = 1 << 27
# Keys of models of any architecture, and the values other than null with which it is the one that is read.
_CAUSAL: Mapping[str, tuple[Any, ...]] = {"is_causal": (True,), "use_bidirectional_attention": (False,)}
_LENGTH_KEYS = (
    "max_sequence_length",
    "model_max_length",
    "max_position_embeddings",
    "max_seq_len",
    "n_positions",
)


class ExLlamaV2Config:
    """Config of a model.

    Attributes of the user, to be set before the model is built (``prepare`` overwrites those that the folder defines):

    Attributes:
        model_dir: folder of the model.
        max_seq_len: maximum length of a sequence in tokens; also the default length of a KV cache.
        max_batch_size: number of rows of a batch that passes are sized for.
        max_input_len: maximum number of tokens of a row in one pass.
        max_attention_size: maximum of queries times keys in one pass.
        max_output_len: maximum number of positions with logits in one pass, or ``None``.
        scale_pos_emb: positions are divided by this; ``None`` is 1.
        scale_alpha_value: NTK scaling of the rotary base; ``None`` is 1.
        compute_dtype: dtype of weights, states and KV cache; ``None``: float32 on the CPU, and on a GPU bfloat16 if the
            files hold bfloat16, else float16.
        no_graphs: do not capture decode passes on a GPU as CUDA graphs.
        no_flash_attn, no_xformers, no_sdpa, load_in_q4, max_dq_size, fasttensors: accepted for compatibility; they
            choose among backends that this core does not have.

    The others are set by :meth:`prepare`, and named after the keys of ``config.json`` where there is one;
    ``vision_model_type`` is the kind of the vision tower, if it is one that
    :class:`~constrain.model.ExLlamaV2VisionTower` reads.
    """

    def __init__(self, model_dir: str | os.PathLike[str] | None = None) -> None:
        """Create a config with default settings; with a folder, :meth:`prepare` runs at once."""
        check_type("model_dir", model_dir, (str, os.PathLike, type(None)), "the path of a folder")
        self.model_dir: str | None = None if model_dir is None else os.fspath(model_dir)
        self.max_seq_len = 2048
        self.max_batch_size = 1
        self.max_input_len = 2048
        self.max_attention_size = 2048**2
        self.max_output_len: int | None = None
        self.scale_pos_emb: float | None = 1.0
        self.scale_alpha_value: float | None = 1.0
        self.compute_dtype: torch.dtype | None = None
        self.no_flash_attn = "EXLLAMA_NO_FLASH_ATTN" in os.environ
        self.no_xformers = "EXLLAMA_NO_XFORMERS" in os.environ
        self.no_sdpa = "EXLLAMA_NO_SDPA" in os.environ
        self.no_graphs = "EXLLAMA_NO_GRAPHS" in os.environ
        self.load_in_q4 = False
        self.max_dq_size = 512 * 1024**2
        self.fasttensors = False
        self.vision_model_type: str | None = None
        self.generation_config: dict[str, Any] = {}
        self.bos_token_id: int | None = None
        self.eos_token_id: int | None = None
        self.pad_token_id: int | None = None
        self.vocab_size: int = 0
        self.experts: ExpertConfig | None = None
        self._longest: int | None = None
        if self.model_dir is not None:
            self.prepare()

    def prepare(self, no_tensors: bool = False) -> None:
        """Read ``config.json`` and ``generation_config.json``, and check that the tensors of the model are there.

        Args:
            no_tensors: read no safetensors file.

        Raises:
            ConfigError: the folder or a file is missing, or a value is missing, malformed or out of bounds.
            WeightsError: a tensor is missing, of the wrong shape or type, or a file is damaged.
        """
        if self.model_dir is None:
            raise ConfigError("config.model_dir is not set; set it to the folder of a model before prepare()")
        folder = Path(self.model_dir)
        path = config_path(folder)
        data = read_json_object(path)
        self.model_config = str(path)
        self.arch = _architecture(path, data)
        self.architecture = self.arch.arch_string
        self.vision_model_type = _vision_type(data, self.arch)
        if self.arch.multimodal and not self.vision_model_type:
            _log.warning("%s: of a %s, the text model is read; the rest is left out", folder, self.architecture)
        text = data.get("text_config")
        self.arch = _with_text(path, text, self.arch)
        self._read(ConfigReader(path, [data, text if isinstance(text, dict) else {}, self.arch.lm.defaults]))
        self.generation_config = read_generation_config(folder)
        self._find_tensors(None if no_tensors else TensorFiles.of_folder(folder, self.quantization))

    def check(self) -> None:
        """Check the attributes of the user; a model does so when it is built.

        Raises:
            ConfigError: an attribute is of the wrong type, or out of its bounds.
        """
        for name in ("max_seq_len", "max_batch_size", "max_input_len", "max_attention_size"):
            check_count(name, getattr(self, name), 1, error=ConfigError)
        self.check_length("max_seq_len", self.max_seq_len)
        if self.max_output_len is not None:
            check_count("max_output_len", self.max_output_len, 1, error=ConfigError)
        for name in ("scale_pos_emb", "scale_alpha_value"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0, error=ConfigError)
        check_type("compute_dtype", self.compute_dtype, (torch.dtype, type(None)), "a torch.dtype", ConfigError)

    @property
    def num_experts_per_token(self) -> int | None:
        """Number of experts of a mixture for each token, ``None`` without one. May be changed before a model is built.

        Raises:
            ConfigError: there are no experts, or fewer than this to choose from.
        """
        return self.experts.routing.chosen if self.experts else None

    @num_experts_per_token.setter
    def num_experts_per_token(self, count: int) -> None:
        if self.experts is None:
            raise ConfigError(f"{self.architecture} has no experts")
        check_count("num_experts_per_token", count, 1, error=ConfigError)
        routing = self.experts.routing
        most = self.experts.count // routing.groups * routing.chosen_groups
        if count > most:
            raise ConfigError(f"num_experts_per_token must be at most {most}, not {count}")
        self.experts = replace(self.experts, routing=replace(routing, chosen=count))

    def check_length(self, name: str, length: int, error: type[ConstrainError] = ConfigError) -> None:
        """Check that the model is read for sequences of this many tokens.

        Raises:
            ConstrainError: (as ``error``) it is longer.
        """
        if self._longest is not None and length > self._longest:
            raise error(
                f"{name} is {length}; {self.architecture} is supported up to {self._longest} tokens, beyond which its "
                "attention changes"
            )

    @property
    def attends_by_scores(self) -> bool:
        """Whether attention needs a tensor of all scores, beyond the operations that do without."""
        return self.attn_logit_softcapping is not None or self.arch.lm.sinks or self.head_dim > MAX_FUSED_DIM

    @property
    def padded_vocab_size(self) -> int:
        """Number of logits: ``vocab_size`` rounded up to 32."""
        return (self.vocab_size + 31) // 32 * 32

    def set_low_mem(self) -> None:
        """Choose smaller passes, for less memory."""
        self.max_input_len = 1024
        self.max_attention_size = 1024**2
        if self.max_output_len is not None:
            self.max_output_len = min(self.max_output_len, 1024)

    def arch_compat_overrides(self, quiet: bool = False, warn_only: bool = False) -> None:
        """Do nothing: all architectures use the same attention. Part of the interface of exllamav2."""

    def _read(self, reader: ConfigReader) -> None:
        traits = self.arch.lm
        self.vocab_size = reader.integer("vocab_size", high=MAX_VOCAB)
        self.hidden_size: int = reader.integer("hidden_size", high=_MAX_WIDTH)
        self.intermediate_size: int = reader.integer(traits.mlp_size_key, high=_MAX_WIDTH)
        self.num_hidden_layers: int = reader.integer("num_hidden_layers", high=_MAX_LAYERS)
        self._read_heads(reader)
        self._read_latent(reader)
        self.norm_eps: float = reader.number(traits.norm_eps_key, 1e-6, high=1.0)
        self.tie_word_embeddings = reader.boolean("tie_word_embeddings", False)
        attention_bias = reader.boolean(traits.bias_key, False)
        self.qkv_bias = attention_bias if traits.qkv_bias is None else traits.qkv_bias
        self.output_bias = attention_bias and traits.output_bias_follows
        if traits.output_bias_key:
            self.output_bias = reader.boolean(traits.output_bias_key, False)
        self.mlp_bias = traits.mlp_bias_key is not None and reader.boolean(traits.mlp_bias_key, False)
        self.attn_logit_softcapping: float | None = None
        if traits.scores_capped:
            self.attn_logit_softcapping = reader.number("attn_logit_softcapping", None)
        self.final_logit_softcapping: float | None = None
        if traits.logits_capped:
            self.final_logit_softcapping = reader.number("final_logit_softcapping", None)
        self.query_scale = 1 / math.sqrt(reader.number("query_pre_attn_scalar", None) or self.head_dim)
        self.embedding_scale = math.sqrt(self.hidden_size) if traits.scaled_embedding else 1.0
        self.logit_scale = reader.number(traits.logit_scale_key, 1.0) if traits.logit_scale_key else 1.0
        if traits.multipliers:
            self._read_multipliers(reader)
        enabled = traits.qk_norm_key is None or reader.boolean(traits.qk_norm_key, False)
        self.use_qk_norm = traits.qk_norm is not None and enabled
        for key, values in {**_CAUSAL, **traits.supported}.items():
            if reader.raw(key, None) not in (None, *values):
                raise reader.error(key, f"{reader.raw(key)!r} is not supported")
        self._read_experts(reader)
        self.quantization: Quantization | None = read_quantization(reader)
        self._read_activation(reader)
        self._read_lengths(reader)
        self._read_windows(reader)
        for role in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(self, role, first_token(reader, role))

    def _read_heads(self, reader: ConfigReader) -> None:
        heads = reader.integer("num_attention_heads", high=_MAX_WIDTH)
        kv_heads = reader.integer("num_key_value_heads", heads, high=_MAX_WIDTH)
        if heads % kv_heads:
            raise reader.error("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
        sized = self.arch.lm.latent or reader.raw("head_dim", None)
        if not sized and self.hidden_size % heads:
            raise reader.error("hidden_size", f"{self.hidden_size} is not a multiple of the {heads} attention heads")
        self.num_attention_heads: int = heads
        self.num_key_value_heads: int = kv_heads
        self.num_key_value_groups: int = heads // kv_heads
        self.head_dim: int = reader.integer("head_dim", self.hidden_size // heads, high=_MAX_WIDTH)

    def _read_latent(self, reader: ConfigReader) -> None:
        """Read the sizes of latent attention, which has one key and one value in the cache for all heads."""
        latent = read_latent(reader) if self.arch.lm.latent else None
        self.latent: LatentConfig | None = latent
        self.interleaved = self.arch.lm.interleaved and reader.boolean("rope_interleave", True)
        self.rotary_head_dim = latent.rotated if latent else self.head_dim
        if latent:
            self.num_key_value_heads, self.num_key_value_groups = 1, self.num_attention_heads
            self.head_dim = latent.stored

    def _read_multipliers(self, reader: ConfigReader) -> None:
        """Read the factors of Granite.

        Layers add ``factor * f(norm(x))`` to ``x``. They add ``f(norm(x))`` to ``x / factor`` here, which needs no
        product: norms divide by the root mean square, so that all that changes is what they add to the mean square.
        """
        factor = reader.number("residual_multiplier", 1.0, low=1e-6, high=1e6)
        self.query_scale = reader.number("attention_multiplier", 1.0)
        self.embedding_scale = reader.number("embedding_multiplier", 1.0) / factor
        self.logit_scale = 1 / reader.number("logits_scaling", 1.0, low=1e-6)
        self.norm_eps /= factor**2

    def _read_experts(self, reader: ConfigReader) -> None:
        traits = self.arch.lm.experts
        experts = read_experts(reader, traits, self.num_hidden_layers) if traits else None
        self.experts = experts
        self.num_experts: int | None = experts.count if experts else None

    def _read_activation(self, reader: ConfigReader) -> None:
        name, alias = self.arch.lm.activation.value, self.arch.lm.activation_alias
        key = "hidden_activation" if reader.raw("hidden_activation", None) else "hidden_act"
        if reader.text(key, name) not in (name, alias if key == "hidden_act" else name):
            raise reader.error(key, f"{reader.text(key)!r} is not what {self.architecture} has, which is {name!r}")

    def _read_lengths(self, reader: ConfigReader) -> None:
        lengths = (reader.integer(key, None, high=_MAX_LENGTH) for key in _LENGTH_KEYS)
        self.max_seq_len = next((length for length in lengths if length is not None), 2048)
        partly = self.arch.lm.partly_rotated
        self.rope, self.rope_local = read_rope(reader, self.rotary_head_dim, self.max_seq_len, partly)
        self._read_head_norm()
        self._longest = None
        self._read_chunks(reader)
        for rope in (self.rope, self.rope_local):
            if rope.method == "dynamic" or rope.scores_scaled:
                self._bound_length(rope.original_length)
        if self.vision_model_type and self.arch.lm.mrope:
            traits, pairs = self.arch.lm, self.rope.dim // 2
            axes = read_axes(reader, traits.mrope_sections, traits.mrope_interleaved, pairs)
            self.rope, self.rope_local = (replace(rope, axes=axes) for rope in (self.rope, self.rope_local))
        if self.latent:
            self.query_scale = self.rope.score_factor / math.sqrt(self.latent.query)
        self.original_max_seq_len = self.rope.original_length if self.rope.method == "su" else self.max_seq_len
        self.rotary_embedding_base = self.rope.theta
        self.partial_rotary_factor = self.rope.dim / self.head_dim
        self.alt_rope_method = None if self.rope.method == "linear" else self.rope.method

    def _read_head_norm(self) -> None:
        """Derive what norms of heads add to the mean square, from the parameters of the rotation.

        A norm without weights follows the rotation, whose amplitude it takes out of the states but for that.
        """
        self.head_norm_eps = self.norm_eps
        if self.use_qk_norm and self.arch.lm.qk_norm is QKNorm.UNIT:
            self.head_norm_eps /= self.rope.amplitude**2
            self.rope = replace(self.rope, amplitude=1.0)

    def _read_chunks(self, reader: ConfigReader) -> None:
        """Read the length up to which neither chunked attention nor its temperature has an effect."""
        if not self.arch.lm.chunked:
            return
        self._bound_length(reader.integer("attention_chunk_size", 8192, high=_MAX_LENGTH))
        if reader.raw("attn_temperature_tuning", True):
            self._bound_length(reader.integer("floor_scale", 8192, low=2, high=_MAX_LENGTH) - 1)

    def _bound_length(self, longest: int) -> None:
        """Note that the model is not read beyond this length."""
        self._longest = min(longest, self._longest or longest)
        self.max_seq_len = min(self.max_seq_len, self._longest)

    def _read_windows(self, reader: ConfigReader) -> None:
        traits = self.arch.lm
        window = reader.integer("sliding_window", None, low=0, high=_MAX_LENGTH) if traits.sliding else None
        layers = range(self.num_hidden_layers)
        types = _layer_types(reader)
        known = ["full_attention"]
        known += ["chunked_attention"] if traits.chunked else ["sliding_attention"] if traits.sliding else []
        if types is not None and (len(types) != len(layers) or {*types}.difference(known)):
            raise reader.error("layer_types", f"must say {' or '.join(known)} for every layer")
        if not window or traits.sliding is None:
            self.sliding_layers = [False for _ in layers]
        elif types is not None:
            self.sliding_layers = [name == "sliding_attention" for name in types]
        else:
            self.sliding_layers = [traits.sliding(reader, layer) for layer in layers]
        self.rotary_layers = [traits.rotary(reader, layer) for layer in layers]
        if types is not None and traits.alike and window:
            self._check_alike(reader)
        self.sliding_window: int | None = window if any(self.sliding_layers) else None

    def _check_alike(self, reader: ConfigReader) -> None:
        assert self.arch.lm.sliding is not None
        says = self.arch.lm.sliding(reader, 0)
        if any(layer != says for layer in self.sliding_layers):
            kind = "sliding_attention" if says else "full_attention"
            raise reader.error("layer_types", f"every layer of a {self.architecture} with this config has {kind}")

    def _find_tensors(self, files: TensorFiles | None) -> None:
        self.files = files
        tied = self.tie_word_embeddings
        fits = (prefix for prefix in self.arch.prefixes if files and f"{prefix.body}embed_tokens.weight" in files)
        self.prefix = next(fits, self.arch.prefixes[0])
        self.layout: ModelLayout = model_layout(self, self.prefix, tied)
        self.tensor_file_map: dict[str, str] = {}
        self.tensor_files: list[str] = []
        if files is None:
            return
        # Some configs say that embedding and head are tied, although the files have a head that was trained.
        if tied and f"{self.layout.head}.weight" in files:
            self.layout = model_layout(self, self.prefix, tied=False)
        self.layout = as_stored(self.layout, files)
        with files.kept_open():
            for key, shape in self.layout.tensors():
                if key == f"{self.layout.head}.weight" and key not in files:
                    folder = files.files[0].parent
                    raise WeightsError(f"{folder}: no tensor {key}; the files of a base model cannot predict tokens")
                files.require(key, shape)
            check_unused(files, self.layout, self.architecture, self.arch.multimodal)
        self.tensor_file_map = {key: str(tensor.file) for key, tensor in files.tensors.items()}
        self.tensor_files = [str(file) for file in files.files]


def _layer_types(reader: ConfigReader) -> list[str] | None:
    types = reader.strings("layer_types")
    # Families that mix attention with other layers, all of which are attention here, say no more than that.
    return types and ["full_attention" if name == "attention" else name for name in types]


def _architecture(path: Path, data: dict[str, Any]) -> Architecture:
    names = data.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise ConfigError(f"{path}: architectures must be a list of one name, not {names!r}")
    name = names[0]
    if name not in ARCHITECTURES and name.endswith("Model"):  # a base model, whose files may have its tied head
        name = name.removesuffix("Model") + "ForCausalLM"
    if name not in ARCHITECTURES:
        nearest = get_close_matches(name, ARCHITECTURES, n=1, cutoff=0.0)[0]
        supported = ", ".join(ARCHITECTURES)
        raise ConfigError(
            f"{path}: unknown architecture {names[0]!r}; the nearest known one is {nearest}. Supported are {supported}"
        )
    return ARCHITECTURES[name]


def _vision_type(data: dict[str, Any], arch: Architecture) -> str | None:
    """Return the kind of the vision tower if it is one that is read."""
    vision = data.get("vision_config")
    if arch.vision is None or not isinstance(vision, dict) or vision.get("model_type") not in arch.vision.model_types:
        return None
    return arch.vision.kind


def _with_text(path: Path, text: Any, arch: Architecture) -> Architecture:
    """Return an architecture with the decoder of its text model."""
    found = text.get("model_type") if isinstance(text, dict) else None
    if not arch.texts:
        return arch
    if not isinstance(found, str | None) or found not in arch.texts:
        supported = ", ".join(name for name in arch.texts if name)
        raise ConfigError(f"{path}: text_config.model_type: {found!r} is not supported; supported are {supported}")
    return replace(arch, lm=arch.texts[found])
