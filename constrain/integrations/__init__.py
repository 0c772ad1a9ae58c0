"""The engine inside other runtimes.

Each module needs the library that it is named after; :mod:`constrain.integrations.serving` needs none, not even torch.
"""
