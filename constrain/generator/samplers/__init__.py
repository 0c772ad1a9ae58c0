"""The steps of sampling, each a pure function over torch tensors; :mod:`constrain.generator.sampler` orders them."""
