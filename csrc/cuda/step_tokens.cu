#include "cuda/launch.cuh"
#include "cuda/step_tokens.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "enter_tokens";
constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) enter(StepTokens p) {
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x * kThreads + threadIdx.x;
  if (r >= p.rows) return;
  const int past = p.past[r];
  if (past < 0) {
    p.ids[r] = p.lengths[r] = 0;
    return;
  }
  const int given = p.given[r];
  const int id = given >= 0 ? given : max(static_cast<int>(p.sampled[~given]), 0);
  const int64_t page = p.block_table[r * p.block_table_stride + past / p.page_size];
  p.text[page * p.page_size + past % p.page_size] = id;
  p.ids[r] = id;
  p.lengths[r] = p.past[r] = past + 1;
  p.given[r] = ~r;
}

}  // namespace

void enter_tokens(const StepTokens& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(p.given && p.sampled && p.past && p.block_table && p.text && p.ids && p.lengths, kName, "null pointer");
  require(p.page_size > 0, kName, "page size out of range");
  launch(kName, enter, {dim3((p.rows + kThreads - 1) / kThreads), kThreads}, stream, p);
}

}  // namespace constrain::cuda
