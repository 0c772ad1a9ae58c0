// The frames that read the next byte, where others only call them.
#pragma once

#include <span>
#include <vector>

#include "engine/grammar/configuration.h"

namespace constrain {

/// Replaces stack tops whose frames begin with calls by those of what they call, down to frames that read the next
/// byte. None if these are many.
std::vector<StackTop> with_callees(const ParseTable& grammar, ConfigurationStore& store,
                                   std::span<const StackTop> tops);

}  // namespace constrain
