#include "engine/text/idna.h"

#include <algorithm>
#include <span>
#include <vector>

#include "engine/text/packed_ranges.h"

namespace constrain {

namespace {

#include "engine/text/idna_tables.inc"

std::vector<IdnaRun> unpack() {
  std::vector<IdnaRun> runs;
  std::span<const uint8_t> data(kIdnaData);
  for (char32_t end = 0; !data.empty(); end = runs.back().last + 1) {
    const auto [first, last] = read_range(data, end);
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
