#include "engine/base/memory_account.h"

#include "engine/base/errors.h"

namespace constrain {

void MemoryAccount::refuse(size_t bytes) {
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  throw ResourceLimit("max_memory", limit_, "by the states of the grammar");
}

}  // namespace constrain
