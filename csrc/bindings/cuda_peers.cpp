#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <vector>

#include "bindings/cuda.h"
#include "cuda/peer_sum.cuh"

namespace py = pybind11;
using py::arg;

namespace constrain::cuda {

void bind_peers(py::module_& m) {
  py::class_<PeerSum>(m, "PeerSum", "Memory of several GPUs for sums over them.")
      .def(py::init<std::vector<int>>(), arg("devices"))
      .def_readonly_static("MAX_RANKS", &PeerSum::kMaxRanks)
      .def_readonly_static("MAX_BYTES", &PeerSum::kMaxBytes)
      .def(
          "add",
          [](const PeerSum& self, const std::vector<Address>& parts, const std::vector<Address>& residuals,
             const std::vector<Address>& streams, int64_t bytes, const std::string& dtype) {
            if (parts.size() != residuals.size() || parts.size() != streams.size())
              throw std::invalid_argument("peer_sum: needs a residual and a stream for every part");
            std::vector<Summand> summands;
            for (size_t i = 0; i < parts.size(); ++i)
              summands.push_back({data(parts[i]), data(residuals[i]), stream_of(streams[i])});
            self.add(summands, bytes, float_type(dtype));
          },
          py::kw_only(), arg("parts"), arg("residuals"), arg("streams"), arg("bytes"), arg("dtype"),
          "Queue, on every GPU, the sum of all parts plus the residual, which replaces the part.");
}

}  // namespace constrain::cuda
