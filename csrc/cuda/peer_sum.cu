#include <algorithm>
#include <set>
#include <utility>

#include "cuda/launch.cuh"
#include "cuda/peer_sum.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "peer_sum";
constexpr int kThreads = 256;
constexpr int kMaxBlocks = PeerSum::kMaxBytes / (kThreads * 16);
constexpr int kSlots = 2;

// Half of a pack of 16 bytes, as it travels: each word of data with the number of its exchange, in 8 bytes that are
// written and read at once. Data needs no flag beside it, hence no fence, and arrives in the time of one write.
struct alignas(16) Line {
  uint64_t words[2];
};

struct BlockLines {
  Line lines[kSlots][PeerSum::kMaxRanks][2][kThreads];
};

// What a GPU has for an exchange; other GPUs write `blocks`.
struct Mailbox {
  BlockLines blocks[kMaxBlocks];
  uint32_t exchanges[kMaxBlocks];  // the number of the last one of each block
};

struct Rank {
  Mailbox* mailboxes[PeerSum::kMaxRanks];
  uint4* part;
  const uint4* residual;
  int packs;
  int ranks;
  int rank;
};

__device__ __forceinline__ uint64_t tagged(uint32_t data, uint32_t exchange) { return uint64_t{exchange} << 32 | data; }

__device__ __forceinline__ void write_line(Line* line, uint32_t x, uint32_t y, uint32_t exchange) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(line), "l"(tagged(x, exchange)),
               "l"(tagged(y, exchange))
               : "memory");
}

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

// Waits for a line of an exchange. Its kernels are queued together, so a line that does not come in this time never
// will, because a launch failed: the error ends the program, which would hang otherwise.
__device__ __forceinline__ uint2 read_line(const Line* line, uint32_t exchange) {
  constexpr uint64_t kPatience = 20'000'000'000;
  constexpr int kPolls = 1 << 14;
  uint64_t began = 0;
  for (int polls = 1;; ++polls) {
    uint64_t x, y;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(line) : "memory");
    if (x >> 32 == exchange && y >> 32 == exchange) return make_uint2(uint32_t(x), uint32_t(y));
    if (polls % kPolls) continue;
    if (!began) began = nanoseconds();
    if (nanoseconds() - began > kPatience) __trap();
  }
}

template <typename T>
__device__ __forceinline__ void add_pack(float (&sum)[kPack<T>], const uint4& pack) {
  const auto* values = reinterpret_cast<const T*>(&pack);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) sum[i] += to_float(values[i]);
}

// Numbers are never 0, as in new memory, and alternate between the slots, also where they begin again.
__device__ __forceinline__ uint32_t following(uint32_t exchange) { return exchange == UINT32_MAX ? 2 : exchange + 1; }

// A thread sends one pack to each of the other GPUs, receives theirs, and adds up. A block always uses all of its
// lines, so that those of a slot are two exchanges old when it waits for new ones.
//
// Two slots suffice. A GPU writes exchange e of a block to others after its own kernel of exchange e - 1 has received
// all their lines of that. They sent those after their kernels of exchange e - 2, which read the same slot, had ended,
// since every kernel waits for its predecessor.
//
// No GPU waits for another that waits for it: a kernel sends before it receives, and the kernels of one exchange are
// queued together on different GPUs, after everything that they depend on. At most kMaxBlocks blocks run, one pack a
// thread; a block waits only for the same block of other GPUs, and blocks start in the same order everywhere.
template <typename T>
__global__ void __launch_bounds__(kThreads) sum_ranks(const __grid_constant__ Rank p) {
  const int block = blockIdx.x, lane = threadIdx.x, at = block * kThreads + lane;
  const bool inside = at < p.packs;
  wait_for_predecessor();
  release_successor();
  Mailbox& own = *p.mailboxes[p.rank];
  const uint32_t exchange = following(own.exchanges[block]);
  const uint4 part = inside ? p.part[at] : uint4{};
  for (int peer = 0; peer < p.ranks; ++peer) {
    if (peer == p.rank) continue;
    auto& lines = p.mailboxes[peer]->blocks[block].lines[exchange % kSlots][p.rank];
    write_line(&lines[0][lane], part.x, part.y, exchange);
    write_line(&lines[1][lane], part.z, part.w, exchange);
  }
  __syncthreads();  // all have read the number
  if (lane == 0) own.exchanges[block] = exchange;

  const uint4 residual = inside && p.residual ? p.residual[at] : uint4{};
  float sum[kPack<T>] = {};
  for (int peer = 0; peer < p.ranks; ++peer) {
    uint4 pack = part;
    if (peer != p.rank) {
      const auto& lines = own.blocks[block].lines[exchange % kSlots][peer];
      const uint2 first = read_line(&lines[0][lane], exchange), second = read_line(&lines[1][lane], exchange);
      pack = make_uint4(first.x, first.y, second.x, second.y);
    }
    add_pack<T>(sum, pack);
  }
  add_pack<T>(sum, residual);
  if (!inside) return;
  uint4 pack;
  auto* values = reinterpret_cast<T*>(&pack);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) values[i] = from_float<T>(sum[i]);
  p.part[at] = pack;
}

// Makes a device the current one, until the end of the scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_cuda(cudaGetDevice(&before_), kName);
    check_cuda(cudaSetDevice(device), kName);
  }
  ~CurrentDevice() { cudaSetDevice(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

void enable_peer(int device, int peer) {
  int can_access = 0;
  check_cuda(cudaDeviceCanAccessPeer(&can_access, device, peer), kName);
  require(can_access, kName, "a device cannot access another's memory");
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();
  else
    check_cuda(error, kName);
}

using Kernel = void (*)(Rank);

Kernel kernel_of(FloatType type) {
  if (type == FloatType::float32) return sum_ranks<float>;
  Kernel kernel = nullptr;
  with_half_type(type, kName, [&](auto element) { kernel = sum_ranks<decltype(element)>; });
  return kernel;
}

// Loads kernels now: the first launch would, and might wait for other work of the device in the midst of an exchange.
void load_kernels() {
  for (FloatType type : {FloatType::float32, FloatType::float16, FloatType::bfloat16}) {
    cudaFuncAttributes attributes;
    check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_of(type))), kName);
  }
}

}  // namespace

PeerSum::PeerSum(std::vector<int> devices) : devices_(std::move(devices)), memory_(devices_.size()) {
  const size_t ranks = devices_.size();
  require(ranks > 1 && ranks <= kMaxRanks, kName, "needs 2 to 8 devices");
  require(std::set<int>(devices_.begin(), devices_.end()).size() == ranks, kName, "needs different devices");
  try {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const CurrentDevice current(devices_[rank]);
      for (int peer : devices_)
        if (peer != devices_[rank]) enable_peer(devices_[rank], peer);
      check_cuda(cudaMalloc(&memory_[rank], sizeof(Mailbox)), kName);
      check_cuda(cudaMemset(memory_[rank], 0, sizeof(Mailbox)), kName);
      check_cuda(cudaDeviceSynchronize(), kName);
      load_kernels();
    }
  } catch (...) {
    release();
    throw;
  }
}

PeerSum::~PeerSum() { release(); }

void PeerSum::release() noexcept {
  for (void* memory : memory_) cudaFree(memory);
}

void PeerSum::add(const std::vector<Summand>& summands, int64_t bytes, FloatType type) const {
  const int ranks = static_cast<int>(devices_.size());
  require(summands.size() == devices_.size(), kName, "needs a part of every device");
  require(bytes >= 0 && bytes <= kMaxBytes && bytes % 16 == 0, kName, "needs whole packs of 16 bytes, few enough");
  for (const Summand& each : summands) {
    require(each.part, kName, "null pointer");
    require(aligned(each.part, 16) && aligned(each.residual, 16), kName, "misaligned pointer");
  }
  if (bytes == 0) return;
  const Kernel kernel = kernel_of(type);
  const int packs = static_cast<int>(bytes / 16);
  const LaunchShape shape{dim3((packs + kThreads - 1) / kThreads), kThreads};
  for (int rank = 0; rank < ranks; ++rank) {
    const CurrentDevice current(devices_[rank]);
    const Summand& own = summands[rank];
    Rank p{{}, static_cast<uint4*>(own.part), static_cast<const uint4*>(own.residual), packs, ranks, rank};
    std::transform(memory_.begin(), memory_.end(), p.mailboxes, [](void* each) { return static_cast<Mailbox*>(each); });
    launch(kName, kernel, shape, own.stream, p);
  }
}

}  // namespace constrain::cuda
