"""Hypothesis strategies for tokens, weights and temperatures."""

import numpy as np
from hypothesis import strategies as st

from mfsweep import Weights

seeds = st.integers(0, 2**32 - 1)
betas = st.one_of(st.just(0.0), st.floats(-3, 6).map(lambda power: 10.0**power))


def on_sphere(rng, n, d):
    """Uniform tokens, drawn by the test itself."""
    x = rng.standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@st.composite
def systems(draw, most_tokens=40, dimensions=(2, 3, 5, 17)):
    """A random particle system: (tokens, mass, weights)."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(1, most_tokens)), draw(st.sampled_from(dimensions))
    x = on_sphere(rng, n, d)
    if draw(st.booleans()):  # a tight cluster
        x[n // 2 :] = x[n // 2] + 1e-9 * rng.standard_normal((n - n // 2, d))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    mass = rng.uniform(0.1, 1.0, n)
    weights = Weights(rng.standard_normal((d, d)), rng.standard_normal((d, d)))
    return x, mass / mass.sum(), weights
