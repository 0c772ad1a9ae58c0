"""The config with the attributes of exllamav2."""

from __future__ import annotations

from constrain import model as native


class ExLlamaV2Config(native.ExLlamaV2Config):
    """:class:`constrain.model.ExLlamaV2Config` with further attributes of exllamav2.

    Attributes:
        num_experts: of a mixture of experts.
        logit_scale: factor of the logits.
        scale_depth, scale_emb: multipliers that no supported model has.
        checkpoint_fused_mlp, checkpoint_offset_qzeros: forms of quantised weights that are not supported.
        mrope_section: numbers of pairs of features that turn with each axis of multi-axis RoPE.
        scale_long_factor, scale_short_factor: divisors of the frequencies beyond, and up to, the original context.
        yarn_rope_factor, yarn_rope_original_max_position_embeddings: parameters of YaRN.
        l3_rope_factor, l3_rope_low_freq_factor, l3_rope_high_freq_factor, l3_rope_original_max_position_embeddings:
            parameters of the method of Llama 3.
    """

    num_experts: int | None = None
    logit_scale = 1.0
    scale_depth = 1.0
    scale_emb = 1.0
    checkpoint_fused_mlp = False
    checkpoint_offset_qzeros = False
    mrope_section: list[int] | None = None
    scale_long_factor: list[float] | None = None
    scale_short_factor: list[float] | None = None
    yarn_rope_factor: float | None = None
    yarn_rope_original_max_position_embeddings: int | None = None
    l3_rope_factor: float | None = None
    l3_rope_low_freq_factor = 1.0
    l3_rope_high_freq_factor = 4.0
    l3_rope_original_max_position_embeddings: int | None = None

    def prepare(self, no_tensors: bool = False) -> None:
        """See :meth:`constrain.model.ExLlamaV2Config.prepare`."""
        super().prepare(no_tensors)
        rope = self.rope
        if rope.axes:
            self.mrope_section = [rope.axes.count(axis) for axis in range(3)]
        if rope.method == "su":
            self.scale_long_factor, self.scale_short_factor = list(rope.long_factor), list(rope.short_factor)
        elif rope.method == "yarn":
            self.yarn_rope_factor = rope.factor
            self.yarn_rope_original_max_position_embeddings = rope.original_length
        elif rope.method == "llama3":
            self.l3_rope_factor = rope.factor
            self.l3_rope_low_freq_factor, self.l3_rope_high_freq_factor = rope.low_freq_factor, rope.high_freq_factor
            self.l3_rope_original_max_position_embeddings = rope.original_length
