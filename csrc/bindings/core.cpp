// The Python module `constrain._core`: bindings of the engine.
#include "bindings/core.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The constraint engine of constrain.";
  module.attr("__version__") = CONSTRAIN_VERSION;
  constrain::bind_errors(module);
  constrain::bind_vocabulary(module);
  constrain::bind_grammar(module);
  constrain::bind_matcher(module);
  constrain::bind_workers(module);
  constrain::bind_ids(module);
  constrain::bind_words(module);
  constrain::bind_regular(module);
  constrain::bind_cfg(module);
}
