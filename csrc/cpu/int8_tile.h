// The product with weights of eight bits for vectors of any width. Each file that includes this is compiled for other
// instructions, so everything here is in an unnamed namespace, and no inline function of the standard library is used.
#pragma once

#include "cpu/int8_product.h"

namespace constrain::cpu {
namespace {

/// Inputs of a block whose weights are converted to floats at a time where many rows need them: 24 KiB of floats, which
/// leave room for the rows in the first cache.
constexpr size_t kConverted = 192;

/// A part of a product: some inputs of one block.
struct Part {
  const Int8Product& product;
  size_t block, begin, end;

  const int8_t* codes() const { return product.codes + (block * product.inputs + begin) * kBlock; }
};

/// Weights as floats, from codes or converted before.
template <class Lanes>
typename Lanes::Floats weights_of(const int8_t* codes) {
  return Lanes::from_codes(codes);
}
template <class Lanes>
typename Lanes::Floats weights_of(const float* weights) {
  return Lanes::load(weights);
}

/// Adds up `Rows` rows by a part in registers. Sums of earlier inputs are in the output, which the last scale.
template <class Lanes, int Rows, class Weight>
inline void tile(const Part& part, const Weight* weights, size_t row) {
  constexpr int kVectors = kBlock / Lanes::kCount;
  const Int8Product& product = part.product;
  const size_t inputs = product.inputs, column = part.block * kBlock, outputs = product.blocks * kBlock;
  const float* x = product.x + row * inputs + part.begin;
  float* out = product.out + row * outputs + column;
  typename Lanes::Floats sums[Rows][kVectors] = {};
  if (part.begin > 0) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Lanes::load(out + r * outputs + v * Lanes::kCount);
    }
  }
  for (size_t i = 0; i < part.end - part.begin; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const auto weight = weights_of<Lanes>(weights + i * kBlock + v * Lanes::kCount);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) sums[r][v] = Lanes::multiply_add(weight, x[r * inputs + i], sums[r][v]);
    }
  }
  const bool is_last = part.end == inputs;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const size_t first = v * Lanes::kCount;
      const auto sum = is_last ? Lanes::scaled(sums[r][v], product.scales + column + first) : sums[r][v];
      Lanes::store(out + r * outputs + first, sum);
    }
  }
}

/// Computes the rows from `row` on, by tiles of `Rows` and a smaller one for the rest.
template <class Lanes, int Rows, class Weight>
inline void tiles(const Part& part, const Weight* weights, size_t row) {
  for (; row + Rows <= part.product.rows; row += Rows) tile<Lanes, Rows>(part, weights, row);
  if constexpr (Rows > 1) {
    if (row < part.product.rows) tiles<Lanes, Rows - 1>(part, weights, row);
  }
}

/// Computes a block for many rows, whose tiles share converted weights.
template <class Lanes>
inline void convert_and_add(const Int8Product& product, size_t block) {
  float weights[kConverted * kBlock];
  for (size_t begin = 0; begin < product.inputs; begin += kConverted) {
    const size_t end = begin + kConverted < product.inputs ? begin + kConverted : product.inputs;
    const Part part{product, block, begin, end};
    for (size_t i = 0; i < (end - begin) * kBlock; i += Lanes::kCount) {
      Lanes::store(weights + i, Lanes::from_codes(part.codes() + i));
    }
    tiles<Lanes, Lanes::kMaxRows>(part, weights, 0);
  }
}

template <class Lanes>
inline void blocks(const Int8Product& product, size_t begin, size_t end) {
  for (size_t block = begin; block < end; ++block) {
    if (product.rows > 2 * Lanes::kMaxRows) {
      convert_and_add<Lanes>(product, block);
    } else {
      const Part whole{product, block, 0, product.inputs};
      tiles<Lanes, Lanes::kMaxRows>(whole, whole.codes(), 0);
    }
  }
}

}  // namespace
}  // namespace constrain::cpu
