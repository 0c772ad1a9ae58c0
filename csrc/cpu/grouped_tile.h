// The grouped product for vectors of any width. Each file that includes this is compiled for other instructions, so
// everything here is in an unnamed namespace, and no inline function of the standard library is used.
#pragma once

#include "cpu/grouped_product.h"

namespace constrain::cpu {
namespace {

/// Codes that are signed integers of `Bits` bits.
template <int Bits>
struct SignedCodes {
  static constexpr int kBits = Bits;
  template <class Lanes>
  static typename Lanes::Floats decode(typename Lanes::Words word) {
    return Lanes::template signed_codes<Bits>(word);
  }
};

/// Codes that are floats of four bits, E2M1.
struct Float4Codes {
  static constexpr int kBits = 4;
  template <class Lanes>
  static typename Lanes::Floats decode(typename Lanes::Words word) {
    return Lanes::float4_codes(word);
  }
};

/// Codes that are floats of eight bits, E4M3.
struct Float8Codes {
  static constexpr int kBits = 8;
  template <class Lanes>
  static typename Lanes::Floats decode(typename Lanes::Words word) {
    return Lanes::float8_codes(word);
  }
};

/// The number of codes after which a stream of `Bits` bits each is at the end of a word.
constexpr int codes_of_unit(int bits) {
  int count = 1;
  while (count * bits % 32 != 0) ++count;
  return count;
}

/// `Rows` rows by `Blocks` blocks: the sums of one group in registers, those of all earlier groups in the output.
template <class Lanes, int Rows, int Blocks>
struct Tile {
  static constexpr int kBlockVectors = kBlock / Lanes::kCount;
  static constexpr int kVectors = Blocks * kBlockVectors;
  using Floats = typename Lanes::Floats;
  using Words = typename Lanes::Words;

  const GroupedProduct& product;
  size_t row;
  size_t block;

  /// The place of vector `v` in an array `[blocks, size, kBlock]`, at the beginning of its block.
  size_t at(int v, size_t size) const {
    return (block + v / kBlockVectors) * size * kBlock + (v % kBlockVectors) * Lanes::kCount;
  }

  /// Code `Index` of a unit in the lowest bits of each lane; the bits above are those of other codes.
  template <int Bits, int Index>
  static Words shifted(const uint32_t* words) {
    constexpr int kWord = Index * Bits / 32, kShift = Index * Bits % 32;
    const Words low = Lanes::template right<kShift>(Lanes::load(words + kWord * kBlock));
    if constexpr (kShift + Bits <= 32) {
      return low;
    } else {
      return Lanes::either(low, Lanes::template left<32 - kShift>(Lanes::load(words + (kWord + 1) * kBlock)));
    }
  }

  template <class Code, int Index>
  void add(const float* x, const uint32_t* words, Floats (&sums)[Rows][kVectors]) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const uint32_t* column = words + at(v, product.block_words) - at(0, product.block_words);
      const Floats codes = Code::template decode<Lanes>(shifted<Code::kBits, Index>(column));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        sums[r][v] = Lanes::multiply_add(codes, Lanes::same(x[r * product.inputs + Index]), sums[r][v]);
      }
    }
    if constexpr (Index + 1 < codes_of_unit(Code::kBits)) add<Code, Index + 1>(x, words, sums);
  }

  template <class Code>
  void add_group(const float* x, const uint32_t* words, size_t inputs, Floats (&sums)[Rows][kVectors]) const {
    constexpr int kUnit = codes_of_unit(Code::kBits), kWords = kUnit * Code::kBits / 32;
    for (size_t i = 0; i < inputs; i += kUnit, words += kWords * kBlock) add<Code, 0>(x + i, words, sums);
  }

  void add_codes(int codes, const float* x, const uint32_t* words, size_t inputs,
                 Floats (&sums)[Rows][kVectors]) const {
    switch (codes) {
      case 2:
        return add_group<SignedCodes<2>>(x, words, inputs, sums);
      case 3:
        return add_group<SignedCodes<3>>(x, words, inputs, sums);
      case 4:
        return add_group<SignedCodes<4>>(x, words, inputs, sums);
      case 5:
        return add_group<SignedCodes<5>>(x, words, inputs, sums);
      case 6:
        return add_group<SignedCodes<6>>(x, words, inputs, sums);
      case 8:
        return add_group<SignedCodes<8>>(x, words, inputs, sums);
      case kFloat4:
        return add_group<Float4Codes>(x, words, inputs, sums);
      default:
        return add_group<Float8Codes>(x, words, inputs, sums);
    }
  }

  Floats scales(size_t place) const {
    const char* all = static_cast<const char*>(product.scales);
    switch (product.scale_type) {
      case Scales::kFloat32:
        return Lanes::from_float32(reinterpret_cast<const float*>(all) + place);
      case Scales::kFloat16:
        return Lanes::from_float16(reinterpret_cast<const uint16_t*>(all) + place);
      case Scales::kBfloat16:
        return Lanes::from_bfloat16(reinterpret_cast<const uint16_t*>(all) + place);
      default:
        return Lanes::from_float8(reinterpret_cast<const uint8_t*>(all) + place);
    }
  }

  /// Adds the sums of group `g`, scaled, to the outputs; those of the first group replace them.
  void finish(size_t g, Floats (&sums)[Rows][kVectors]) const {
    const size_t outputs = product.blocks * kBlock, column = block * kBlock;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const size_t place = at(v, product.group_count) + g * kBlock;
      const Floats scale = scales(place);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        Floats sum = sums[r][v];
        if (product.zeros != nullptr) {
          const float inputs_sum = product.sums[(row + r) * product.group_count + g];
          sum = Lanes::multiply_subtract(Lanes::from_int8(product.zeros + place), Lanes::same(inputs_sum), sum);
        }
        float* out = product.out + (row + r) * outputs + column + v * Lanes::kCount;
        Lanes::store(out, Lanes::multiply_add(scale, sum, g == 0 ? Lanes::same(0) : Lanes::from_float32(out)));
      }
    }
  }

  void compute() const {
    const float* x = product.x + row * product.inputs;
    const uint32_t* words = product.words + at(0, product.block_words);
    for (size_t g = 0; g < product.group_count; ++g) {
      const Group group = product.groups[g];
      Floats sums[Rows][kVectors] = {};
      add_codes(group.codes, x, words, group.inputs, sums);
      finish(g, sums);
      x += group.inputs;
      words += static_cast<size_t>(group.inputs) * (group.codes > 100 ? group.codes - 100 : group.codes) / 32 * kBlock;
    }
  }
};

/// Computes the rows from `row` on, by tiles of `Rows` and a smaller one for the rest.
template <class Lanes, int Rows, int Blocks>
inline void grouped_tiles(const GroupedProduct& product, size_t row, size_t block) {
  for (; row + Rows <= product.rows; row += Rows) Tile<Lanes, Rows, Blocks>{product, row, block}.compute();
  if constexpr (Rows > 1) {
    if (row < product.rows) grouped_tiles<Lanes, Rows - 1, Blocks>(product, row, block);
  }
}

/// With few rows, two blocks at a time: the sums of one would wait for each other.
template <class Lanes>
inline void grouped(const GroupedProduct& product, size_t begin, size_t end) {
  size_t block = begin;
  if (product.rows <= Lanes::kFewRows) {
    for (; block + 2 <= end; block += 2) grouped_tiles<Lanes, Lanes::kFewRows, 2>(product, 0, block);
  }
  for (; block < end; ++block) grouped_tiles<Lanes, Lanes::kMaxRows, 1>(product, 0, block);
}

}  // namespace
}  // namespace constrain::cpu
