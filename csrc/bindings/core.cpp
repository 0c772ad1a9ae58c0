#include <pybind11/pybind11.h>

PYBIND11_MODULE(_core, m) {
  m.doc() = "The native part of constrain.";
  m.attr("__version__") = CONSTRAIN_VERSION;
}
