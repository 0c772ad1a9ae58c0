// The product with weights of eight bits for vectors of any width. Each file that includes this is compiled for other
// instructions, so everything here is in an unnamed namespace, and no inline function of the standard library is used.
#pragma once

#include "cpu/int8_product.h"

namespace constrain::cpu {
namespace {

/// Adds up `Rows` rows by one block in registers, and writes their outputs.
template <class Lanes, int Rows>
inline void tile(const Int8Product& product, size_t row, size_t block) {
  constexpr int kVectors = kBlock / Lanes::kCount;
  const size_t inputs = product.inputs;
  const float* x = product.x + row * inputs;
  const int8_t* codes = product.codes + block * inputs * kBlock;
  typename Lanes::Floats sums[Rows][kVectors] = {};
  for (size_t i = 0; i < inputs; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const auto weights = Lanes::from_codes(codes + i * kBlock + v * Lanes::kCount);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) sums[r][v] = Lanes::multiply_add(weights, x[r * inputs + i], sums[r][v]);
    }
  }
  const size_t column = block * kBlock, outputs = product.blocks * kBlock;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const size_t first = column + v * Lanes::kCount;
      Lanes::store_scaled(product.out + (row + r) * outputs + first, sums[r][v], product.scales + first);
    }
  }
}

/// Computes the rows from `row` on, by tiles of `Rows` and a smaller one for the rest.
template <class Lanes, int Rows>
inline void tiles(const Int8Product& product, size_t row, size_t block) {
  for (; row + Rows <= product.rows; row += Rows) tile<Lanes, Rows>(product, row, block);
  if constexpr (Rows > 1) {
    if (row < product.rows) tiles<Lanes, Rows - 1>(product, row, block);
  }
}

template <class Lanes>
inline void blocks(const Int8Product& product, size_t begin, size_t end) {
  for (size_t block = begin; block < end; ++block) tiles<Lanes, Lanes::kMaxRows>(product, 0, block);
}

}  // namespace
}  // namespace constrain::cpu
