// Tests of products with codes of few bits: the instructions of each processor give the same sums, within the buffers.
#include "cpu/grouped_product.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"

namespace constrain::cpu {

namespace {

/// A random weight in buffers of exactly its size, and rows to multiply.
struct Sample {
  std::vector<Group> groups;
  std::vector<float> x, scales, sums;
  std::vector<uint32_t> words;
  std::vector<int8_t> zeros;
  GroupedProduct product;

  Sample(std::vector<Group> given, size_t rows, size_t blocks) : groups(std::move(given)) {
    std::mt19937 random(7);
    size_t inputs = 0, block_words = 0;
    for (const Group& group : groups) {
      inputs += group.inputs;
      block_words += group_words(group);
    }
    for (size_t i = 0; i < rows * inputs; ++i) x.push_back(static_cast<float>(random()) / 4e9f - 0.5f);
    for (size_t i = 0; i < blocks * block_words * kBlock; ++i) words.push_back(static_cast<uint32_t>(random()));
    for (size_t i = 0; i < blocks * groups.size() * kBlock; ++i) {
      scales.push_back(static_cast<float>(random()) / 4e9f);
      zeros.push_back(static_cast<int8_t>(random() % 17 - 8));
    }
    sums.resize(rows * groups.size());
    product = {x.data(),      words.data(), scales.data(), zeros.data(), sums.data(), nullptr,         groups.data(),
               groups.size(), rows,         inputs,        blocks,       block_words, Scales::kFloat32};
    sum_groups(product, sums.data());
  }

  std::vector<float> outputs(GroupedBlocks compute) {
    std::vector<float> out(product.rows * product.blocks * kBlock);
    product.out = out.data();
    compute(product, 0, product.blocks);
    return out;
  }
};

/// A signed code of a row, read bit by bit.
int signed_code(const Sample& sample, size_t block, size_t lane, size_t first_word, int bits, size_t index) {
  int code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const size_t place = index * bits + bit;
    const size_t word = (block * sample.product.block_words + first_word + place / 32) * kBlock + lane;
    code |= static_cast<int>(sample.words[word] >> place % 32 & 1) << bit;
  }
  return code >= 1 << (bits - 1) ? code - (1 << bits) : code;
}

double expected(const Sample& sample, size_t row, size_t output) {
  const size_t block = output / kBlock, lane = output % kBlock;
  double total = 0;
  size_t word = 0, input = row * sample.product.inputs;
  for (size_t g = 0; g < sample.groups.size(); ++g) {
    const Group group = sample.groups[g];
    const size_t place = (block * sample.groups.size() + g) * kBlock + lane;
    for (int32_t i = 0; i < group.inputs; ++i) {
      const int code = signed_code(sample, block, lane, word, group.codes, i) - sample.zeros[place];
      total += static_cast<double>(sample.x[input++]) * code * sample.scales[place];
    }
    word += group_words(group);
  }
  return total;
}

const std::vector<Group> kWidths = {{2, 32}, {3, 32}, {4, 64}, {5, 32}, {6, 32}, {8, 32}, {4, 8}};
const std::vector<Group> kFloats = {{kFloat4, 32}, {kFloat8, 32}};

}  // namespace

TEST(grouped_products_are_those_of_the_codes) {
  if (grouped_blocks() == nullptr) return;
  Sample sample(kWidths, 5, 3);
  const std::vector<float> found = sample.outputs(grouped_blocks());
  for (size_t i = 0; i < found.size(); ++i) {
    const double exact = expected(sample, i / (3 * kBlock), i % (3 * kBlock));
    CHECK(std::abs(found[i] - exact) < 1e-2);
  }
}

TEST(grouped_products_are_the_same_with_all_instructions) {
  if (!__builtin_cpu_supports("avx512f")) return;
  for (const std::vector<Group>& groups : {kWidths, kFloats}) {
    for (const size_t rows : {1, 2, 3, 4, 9}) {
      for (const size_t blocks : {1, 2, 3}) {
        Sample sample(groups, rows, blocks);
        const std::vector<float> narrow = sample.outputs(avx2_grouped), wide = sample.outputs(avx512_grouped);
        CHECK(std::memcmp(narrow.data(), wide.data(), narrow.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST(groups_whose_codes_fill_no_words_are_none) {
  CHECK(group_words({4, 8}) == 1);
  CHECK(group_words({3, 32}) == 3);
  for (const Group& group : {Group{4, 4}, Group{7, 32}, Group{1, 32}, Group{9, 32}, Group{4, 0}, Group{105, 32}}) {
    CHECK(group_words(group) == 0);
  }
}

}  // namespace constrain::cpu
