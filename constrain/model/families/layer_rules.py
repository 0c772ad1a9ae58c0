"""Which layers of a model are of some kind, by what its config says."""

from __future__ import annotations

from constrain.model.config_reader import ConfigReader


def every_layer(reader: ConfigReader, layer: int) -> bool:
    return True


def every_layer_if_used(reader: ConfigReader, layer: int) -> bool:
    return reader.boolean("use_sliding_window", False)


def from_window_layer(reader: ConfigReader, layer: int) -> bool:
    return reader.boolean("use_sliding_window", False) and layer >= _window_layers(reader)


def even_up_to_window_layer(reader: ConfigReader, layer: int) -> bool:
    return reader.boolean("use_sliding_window", False) and layer < _window_layers(reader) and layer % 2 == 0


def _window_layers(reader: ConfigReader) -> int:
    return int(reader.integer("max_window_layers", 28, low=0, high=1 << 16))


def even_layers(reader: ConfigReader, layer: int) -> bool:
    return layer % 2 == 0


def all_but_each_nth(reader: ConfigReader, layer: int) -> bool:
    pattern = reader.raw("sliding_window_pattern", None)
    if isinstance(pattern, str):
        return _is_local(reader, pattern, layer)
    return (layer + 1) % int(reader.integer("sliding_window_pattern", 6, high=1 << 16)) != 0


def _is_local(reader: ConfigReader, pattern: str, layer: int) -> bool:
    """Return the kind of a layer in a pattern of local (L) and global (G) ones, which repeats; the last is global."""
    if not pattern or {*pattern}.difference("LG"):
        raise reader.error("sliding_window_pattern", f"must be an integer, or letters L and G, not {pattern!r}")
    return layer != reader.integer("num_hidden_layers", high=1 << 16) - 1 and pattern[layer % len(pattern)] == "L"


def where_sliding(reader: ConfigReader, layer: int) -> bool:
    types = reader.strings("layer_types")
    return all_but_each_nth(reader, layer) if types is None else types[layer] == "sliding_attention"


def where_sliding_if_anywhere(reader: ConfigReader, layer: int) -> bool:
    return not reader.raw("sliding_window", None) or where_sliding(reader, layer)


def all_but_every_fourth(reader: ConfigReader, layer: int) -> bool:
    return layer % 4 != 0


def from_full_layers(reader: ConfigReader, layer: int) -> bool:
    return layer >= int(reader.integer("max_window_layers", 62, low=0, high=1 << 16))


def if_position_type_is_rope(reader: ConfigReader, layer: int) -> bool:
    return bool(reader.text("position_embedding_type", None) == "rope")


def each_nth(reader: ConfigReader, layer: int) -> bool:
    return (
        layer not in reader.integers("mlp_only_layers")
        and (layer + 1) % reader.integer("decoder_sparse_step", 1, high=1 << 16) == 0
    )


def each_step(reader: ConfigReader, layer: int) -> bool:
    if reader.has("moe_layers") and reader.raw("moe_layers", None) is not None:
        return layer in reader.integers("moe_layers")
    return (layer + 1) % int(reader.integer("interleave_moe_layer_step", 1, high=1 << 16)) == 0


def rotated(reader: ConfigReader, layer: int) -> bool:
    listed = reader.integers("no_rope_layers")
    if listed:
        return layer < len(listed) and listed[layer] != 0
    return (layer + 1) % int(reader.integer("no_rope_layer_interval", 4, high=1 << 16)) != 0


def unrotated_if_used(reader: ConfigReader, layer: int) -> bool:
    return reader.boolean("use_sliding_window", False) and not rotated(reader, layer)


def after_dense_layers(reader: ConfigReader, layer: int) -> bool:
    first = int(reader.integer("first_k_dense_replace", 1, low=0, high=1 << 16))
    return layer >= first and layer % int(reader.integer("moe_layer_freq", 1, high=1 << 16)) == 0


def as_mlp_types(reader: ConfigReader, layer: int) -> bool:
    types = reader.strings("mlp_layer_types")
    if types is None:
        return after_dense_layers(reader, layer)
    if layer >= len(types) or types[layer] not in ("dense", "sparse"):
        raise reader.error("mlp_layer_types", "must say dense or sparse for every layer")
    return types[layer] == "sparse"


def between_layers(reader: ConfigReader, layer: int) -> bool:
    """Every nth layer from the first to the last that may have experts, as of ERNIE."""
    first = reader.integer("moe_layer_start_index", 1, low=0, high=1 << 16)
    last = reader.integer("moe_layer_end_index", -1, low=-1, high=1 << 16)
    step = reader.integer("moe_layer_interval", 1, high=1 << 16)
    return bool(first <= layer and (last < 0 or layer <= last) and (layer + 1) % step == 0)
