#include "engine/text/idna.h"

#include <algorithm>
#include <span>
#include <vector>

namespace constrain {

namespace {

#include "engine/text/idna_tables.inc"

uint32_t read_base128(std::span<const uint8_t>& data) {
  uint32_t number = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = data.front();
    data = data.subspan(1);
    number |= static_cast<uint32_t>(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

std::vector<IdnaRun> unpack() {
  std::vector<IdnaRun> runs;
  std::span<const uint8_t> data(kIdnaData);
  for (char32_t end = 0; !data.empty(); end = runs.back().last + 1) {
    const char32_t first = end + read_base128(data), last = first + read_base128(data);
    runs.push_back({first, last, static_cast<uint8_t>(read_base128(data))});
  }
  return runs;
}

}  // namespace

std::span<const IdnaRun> idna_runs() {
  static const std::vector<IdnaRun> kRuns = unpack();
  return kRuns;
}

std::span<const IdnaCharacter> idna_kinds() { return kIdnaKinds; }

const IdnaCharacter* idna_character(char32_t scalar) {
  const std::span runs = idna_runs();
  const auto run = std::ranges::lower_bound(runs, scalar, {}, &IdnaRun::last);
  return run != runs.end() && run->first <= scalar ? kIdnaKinds + run->kind : nullptr;
}

}  // namespace constrain
