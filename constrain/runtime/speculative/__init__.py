"""Speculative decoding: draft tokens and forced text are proposed, and verified in one forward pass.

A proposed token is accepted only if it equals the token sampled at its position: proposals change the speed, not the
output (Leviathan et al. 2023, with equality in place of rejection sampling, since random numbers belong to positions).
"""
