// A-labels: labels of host names that encode U-labels (RFC 5890, section 2.3.2.1), without the mark `xn--`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/automata/formats/host_label.h"

namespace constrain {

/// Sets of kinds of labels, with a bit for each.
using LabelKinds = uint32_t;
constexpr LabelKinds bit(LabelKind kind) { return 1u << static_cast<uint32_t>(kind); }

/// Characters within which any text of lower-case letters, digits and hyphens begins a label. Longer labels only end as
/// `encoded_rest` does.
inline constexpr size_t kFreeEncoded = 51;

/// Kind of the label that a text encodes; nullopt if it encodes none.
std::optional<LabelKind> encoded_kind(std::string_view text);

/// A text that completes a label of one of these kinds, which include LabelKind::left; after it, one character less.
std::string encoded_rest(std::string_view text, LabelKinds kinds);

/// True if a text begins a label of one of these kinds.
bool begins_encoded(std::string_view text, LabelKinds kinds);

}  // namespace constrain
