// Products of float32 rows with weights of eight bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace constrain::cpu {

/// Number of outputs computed together: a weight is stored in blocks of this many rows, interleaved.
constexpr size_t kBlock = 32;

/// `out[r][o] = scales[o] * sum over i of x[r][i] * code[o][i]`.
///
/// Every output is summed in the order of the inputs by fused multiply-adds, so it depends neither on the other rows
/// nor on the instructions of the processor.
struct Int8Product {
  const float* x;       ///< `[rows, inputs]`
  const int8_t* codes;  ///< `[blocks, inputs, kBlock]`
  const float* scales;  ///< `[blocks * kBlock]`
  float* out;           ///< `[rows, blocks * kBlock]`
  size_t rows;
  size_t inputs;
  size_t blocks;
};

/// Computes the outputs of some blocks, `begin` to `end`.
using BlockProduct = void (*)(const Int8Product& product, size_t begin, size_t end);

void avx2_blocks(const Int8Product& product, size_t begin, size_t end);
void avx512_blocks(const Int8Product& product, size_t begin, size_t end);

/// The fastest for this processor; null if it has none of the instructions.
BlockProduct block_product();

}  // namespace constrain::cpu
