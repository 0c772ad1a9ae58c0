"""Named model shapes, for benchmarks without a checkpoint: speed does not depend on the values of the weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Dimensions of a Llama model, with the field names of ``config.json``."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int

    def config(self) -> dict[str, Any]:
        """Return the content of a ``config.json``."""
        return asdict(self) | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "max_position_embeddings": 131_072,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        }

    @property
    def weights_read(self) -> int:
        """Number of weights that one decode step reads: all but the embedding, of which it reads one row per token."""
        heads = self.num_attention_heads * self.head_dim
        kv = self.num_key_value_heads * self.head_dim
        attention = self.hidden_size * (2 * heads + 2 * kv)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        return self.num_hidden_layers * layer + self.hidden_size + self.vocab_size * self.hidden_size

    def prefill_operations(self, tokens: int) -> int:
        """Return the multiplications and additions to prefill a prompt: all layers, and the head for the last token."""
        head = self.vocab_size * self.hidden_size
        scores = 2 * self.num_hidden_layers * self.num_attention_heads * self.head_dim * tokens * tokens // 2
        return 2 * (tokens * (self.weights_read - head) + head + scores)

    @property
    def cache_elements(self) -> int:
        """Number of key and value elements per position, over all layers."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim


@dataclass(frozen=True)
class MixtureShape(Shape):
    """Dimensions of a mixture of experts: Mixtral, or Qwen3-MoE where queries and keys are normalised.

    ``intermediate_size`` is that of an expert.
    """

    num_experts: int
    num_experts_per_tok: int
    normed: bool

    def config(self) -> dict[str, Any]:
        names = {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": self.num_experts,
        }
        if self.normed:
            names = {
                "architectures": ["Qwen3MoeForCausalLM"],
                "model_type": "qwen3_moe",
                "moe_intermediate_size": self.intermediate_size,
                "norm_topk_prob": True,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
            }
        return super().config() | names

    @property
    def expert_weights(self) -> int:
        """Number of weights of an expert."""
        return 3 * self.hidden_size * self.intermediate_size

    def active_experts(self, batch: int) -> float:
        """Return the number of experts of a layer that a batch reads on average, if all choices are equally likely."""
        return self.num_experts * (1 - (1 - self.num_experts_per_tok / self.num_experts) ** batch)

    def layer_weights_read(self, batch: int) -> float:
        """Return the number of weights of a layer that a step reads on average, without norms of queries and keys."""
        heads = self.num_attention_heads * self.head_dim
        kv = self.num_key_value_heads * self.head_dim
        attention = self.hidden_size * (2 * heads + 2 * kv)
        router = self.num_experts * self.hidden_size
        return attention + router + 2 * self.hidden_size + self.active_experts(batch) * self.expert_weights


SHAPES = {
    "llama-3.1-8b": Shape(4096, 14_336, 32, 32, 8, 128, 128_256),
    "qwen-2.5-0.5b": Shape(896, 4864, 24, 14, 2, 64, 151_936),
    "llama-3.2-1b": Shape(2048, 8192, 16, 32, 8, 64, 128_256),
}

MIXTURES = {
    "mixtral-8x7b": MixtureShape(4096, 14_336, 32, 32, 8, 128, 32_000, 8, 2, False),
    "qwen3-30b-a3b": MixtureShape(2048, 768, 48, 32, 4, 128, 151_936, 128, 8, True),
}
