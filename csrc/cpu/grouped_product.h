// Products of float32 rows with weights whose codes have two to eight bits, and a scale for each group of inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/int8_product.h"

namespace constrain::cpu {

/// How a group is coded: bits of a signed integer, 2, 3, 4, 5, 6 or 8, or one of these.
enum Codes : int32_t { kFloat4 = 104, kFloat8 = 108 };

/// Type of the scales.
enum class Scales : int32_t { kFloat32, kFloat16, kBfloat16, kFloat8 };

/// A group of inputs.
struct Group {
  int32_t codes;   ///< bits, or `Codes`
  int32_t inputs;  ///< a number whose codes fill whole words
};

/// `out[r][o] = sum over groups g of scales[o][g] * (sum over i in g of x[r][i] * code[o][i] - zeros[o][g] *
/// sums[r][g])`.
///
/// The codes of an output are a stream of bits in words, lowest bits first, which begins anew with every group. Every
/// output is summed in the order of the inputs by fused multiply-adds, group by group, so it depends neither on the
/// other rows nor on the instructions of the processor.
struct GroupedProduct {
  const float* x;         ///< `[rows, inputs]`
  const uint32_t* words;  ///< `[blocks, block_words, kBlock]`
  const void* scales;     ///< `[blocks, groups, kBlock]`
  const int8_t* zeros;    ///< `[blocks, groups, kBlock]`, or null for zeros
  const float* sums;      ///< `[rows, groups]`, the sums of x over each group; not read without `zeros`
  float* out;             ///< `[rows, blocks * kBlock]`
  const Group* groups;
  size_t group_count;
  size_t rows;
  size_t inputs;
  size_t blocks;
  size_t block_words;
  Scales scale_type;
};

/// Computes the outputs of some blocks, `begin` to `end`.
using GroupedBlocks = void (*)(const GroupedProduct& product, size_t begin, size_t end);

void avx2_grouped(const GroupedProduct& product, size_t begin, size_t end);
void avx512_grouped(const GroupedProduct& product, size_t begin, size_t end);

/// The fastest for this processor; null if it has none of the instructions.
GroupedBlocks grouped_blocks();

/// Words that the codes of a group take; zero if there are no such codes, or they do not fill words.
size_t group_words(const Group& group);

/// Sums of the rows of x over each group, into `[rows, groups]`.
void sum_groups(const GroupedProduct& product, float* sums);

}  // namespace constrain::cpu
