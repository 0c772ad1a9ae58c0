// Mixtures of experts for a few tokens, bound by how fast the weights of the chosen experts can be read. No shape of a
// launch depends on the choice, which never reaches the host: a CUDA graph of these kernels serves every choice.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/activation.cuh"
#include "cuda/packed/packed.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

constexpr int kMaxExperts = 512;
constexpr int kMaxChosen = 32;      // experts of a row
constexpr int kMaxExpertRows = 16;  // with more, nearly all experts are read anyway
constexpr int kMaxPackedExpertRows = 32;

enum class Scoring { softmax, sigmoid };

// Chooses experts by `logits`, (rows, experts) with contiguous rows `stride` elements apart: those of the highest
// scores, to which `correction` (experts), if not null, is added for the choice only. Writes the `chosen` experts of
// each row, the best first, and their scores; normalised, divided by the sum of these, and times `scale`. Of equals the
// first is chosen.
struct Routing {
  const void* logits;
  const float* correction;
  int64_t* experts;
  float* weights;
  int64_t stride;
  int rows;
  int count;
  int chosen;
  Scoring scoring;
  bool normalised;
  float scale;
  FloatType type;
};

// out[i] = residual[i] + sum over j of weights[i, j] * mlp[experts[i, j]](x[i]), where mlp[e](x) is
// (act(x @ gate[e].T + b) * (x @ up[e].T + c)) @ down[e].T + d.
//
// `x`, `residual` and `out` are (rows, size), with strides in elements between rows; `residual` may be null. `experts`
// and `weights` are (rows, chosen), and the experts of a row differ. `gate_up` is (count, 2 * width, size), the rows of
// the gate first, `down` (count, size, width), and the biases (count, 2 * width) and (count, size), or null. `inner` is
// scratch memory, (rows * chosen, width). Sizes are multiples of 8, pointers and rows aligned to 16 bytes.
struct ExpertMlp {
  const void* x;
  const int64_t* experts;
  const float* weights;
  const void* gate_up;
  const void* gate_up_bias;
  const void* down;
  const void* down_bias;
  const void* residual;
  void* inner;
  void* out;
  int64_t x_stride;
  int64_t residual_stride;
  int64_t out_stride;
  int rows;
  int count;
  int chosen;
  int size;
  int width;
  Gate gate;
  FloatType type;
};

// The same with packed weights of all experts, (count * 2 * width, size) and (count * size, width), in place of
// `mlp.gate_up` and `mlp.down`. Size and width are multiples of kPackedTile.
//
// Where a weight has an order, (count, columns), its inputs are columns, multiples of 8, and each expert multiplies
// x[order[expert]] instead of x. `gathered` is scratch memory for these, (rows * chosen, the larger number of columns).
struct PackedExpertMlp {
  ExpertMlp mlp;
  PackedWeight gate_up;
  PackedWeight down;
  const int* gate_up_order;
  const int* down_order;
  void* gathered;
};

// out[pick] = x[row][order[expert]] for each pick, which are in the order of ChosenExperts; `of_picks`: x has a row for
// each pick, too.
struct PickGather {
  const void* x;
  const int64_t* experts;
  const int* order;
  void* out;
  int64_t x_stride;
  bool of_picks;
  int rows;
  int chosen;
  int columns;
  FloatType type;
};

// All throw std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the
// launch.
void route(const Routing& p, cudaStream_t stream);
void expert_mlp(const ExpertMlp& p, cudaStream_t stream);
void packed_expert_mlp(const PackedExpertMlp& p, cudaStream_t stream);

// Checks all of a choice but its logits; there may be `most` experts.
void check_routing(const Routing& p, int most, const char* name);

void gather_picks(const PickGather& p, cudaStream_t stream);

// The two parts of `expert_mlp`: x to inner, and inner to out.
void multiply_gate_up(const ExpertMlp& p, cudaStream_t stream);
void multiply_down(const ExpertMlp& p, cudaStream_t stream);

}  // namespace constrain::cuda
