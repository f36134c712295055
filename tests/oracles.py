"""Closed forms and slow independent routes that the tests hold the software against."""

import itertools

import numpy as np
import scipy.stats
from scipy import integrate
from scipy.integrate import solve_ivp
from scipy.linalg import expm

G0 = (
    [[0.20061853952739805, -0.036086592853943826], [-0.1893664263051236, 0.8648266316845125]],
    [[2.711232996837671, 0.7029563458773991], [0.702956345877399, 1.288767003162329]],
)
G1 = (
    [[0.5560936070069851, -0.09607621644556363], [-0.009678601745985373, 0.30138190403760423]],
    [[1.5204366313811202, 0.8775072509551772], [0.8775072509551771, 2.4795633686188796]],
)
GIVEN = {"G0": G0, "G1": G1}

CROSSOVER_500 = {
    ("G0", 5): 11.082,
    ("G0", 10): 14.063,
    ("G0", 20): 19.513,
    ("G0", 40): 22.589,
    ("G0", 80): 27.273,
    ("G1", 5): 13.112,
    ("G1", 10): 15.656,
    ("G1", 20): 19.575,
    ("G1", 40): 23.460,
    ("G1", 80): 37.836,
}
"""Crossover of 500 equispaced tokens, order-8 method at relative tolerance 1e-9."""


def full_softmax_average(q, y, mass, square=None):
    """Averages and effective sample sizes from the full matrix; many rows at once."""
    logits = q @ y.T
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = weights @ mass
    squares = weights**2 @ (mass**2 if square is None else square)
    return (weights * mass) @ y / total[:, None], total**2 / squares


def softmax_average(q, y, mass):
    """Average by two plain loops: (averages, effective sample sizes)."""
    average, ess = np.zeros_like(q), np.zeros(len(q))
    for i, query in enumerate(q):
        logits = [sum(a * b for a, b in zip(query, key, strict=True)) for key in y]
        top = max(logits)
        weights = [w * np.exp(s - top) for w, s in zip(mass, logits, strict=True)]
        total = sum(weights)
        for weight, key in zip(weights, y, strict=True):
            average[i] += weight * key / total
        ess[i] = total**2 / sum(w * w for w in weights)
    return average, ess


def one_token(x0, V, t):
    """O1: e^{tV} x0 / |e^{tV} x0|."""
    image = expm(t * V) @ x0
    return image / np.linalg.norm(image)


def equal_inner_products(s0, n, beta, times):
    """O2 and O3: the common inner product of n tokens with V = B = I."""

    def slope(_, s):
        rest = np.exp(beta * (s - 1))
        return 2 * rest * (1 - s) * (1 + (n - 1) * s) / (1 + (n - 1) * rest)

    run = solve_ivp(slope, (0, times[-1]), [s0], "DOP853", times, rtol=1e-12, atol=1e-14)
    return run.y[0]


def simplex(n, d, s):
    """Tokens (n, d), n <= d, with all pairwise inner products s."""
    gram = np.full((n, n), s) + (1 - s) * np.eye(n)
    x = np.zeros((n, d))
    x[:, :n] = np.linalg.cholesky(gram)
    return x


def zero_temperature(x0, A, B, times):
    """O5: x = e^{tau A} x0 / |.| with d tau / dt = 1 / |B^T x|, one token; shape (time, d)."""
    values, vectors = np.linalg.eigh(A)

    def at(tau):
        image = vectors @ (np.exp((values - values.max()) * tau) * (vectors.T @ x0))
        return image / np.linalg.norm(image)

    run = solve_ivp(
        lambda _, tau: 1 / np.linalg.norm(B.T @ at(tau[0])),
        (0, times[-1]),
        [0.0],
        "DOP853",
        times,
        rtol=1e-12,
        atol=1e-13,
    )
    return np.array([at(tau) for tau in run.y[0]])


def w2_identity_uniform(t, gap, d):
    """O6: W2 to the metastable target at beta = inf, B = I, uniform start, m = 1."""
    q = np.exp(-gap * np.asarray(t))
    if d == 2:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(q < 1, np.arccos(q) / np.sqrt(1 - q * q), 1.0)
        return np.sqrt(2 * (1 - 2 / np.pi * ratio))
    return np.sqrt(2 * q / (1 + q))


def w2_identity_uniform_any(times, gap, d, multiplicity):
    """O7 by quadrature: uniform tokens at zero temperature, B = I, E of any multiplicity.

    With s = |P_E x| at the start, s^2 ~ Beta(m / 2, (d - m) / 2), and q = e^{-gap t}, a token and
    its target make an angle of cosine s / sqrt(s^2 + q^2 (1 - s^2)).
    """
    law = scipy.stats.beta(multiplicity / 2, (d - multiplicity) / 2)

    def square(q):
        def cost(s):  # 2 (1 - cos), times the density of s
            r = np.hypot(s, q * np.sqrt(1 - s * s))
            return 2 * q * q * (1 - s * s) / (r * (r + s)) * 2 * s * law.pdf(s * s)

        ends = np.concatenate([[0], q ** np.linspace(1, 0, 9)])
        return sum(integrate.quad(cost, *pair)[0] for pair in itertools.pairwise(ends))

    return np.sqrt([square(q) for q in np.exp(-gap * np.asarray(times))])


def log_energy(x, mass, beta):
    """O10: log sum_ij w_i w_j e^{beta <x_i, x_j>}."""
    logits = beta * x @ x.T
    top = logits.max()
    return top + np.log(mass @ np.exp(logits - top) @ mass)


CONTINUUM = {
    ("G0", 5): (11.085, 0.02),
    ("G0", 10): (14.051, 0.005),
    ("G0", 20): (19.63, 0.04),
    ("G0", 40): (37.71, 0.075),
    ("G0", 80): (83.99, 0.17),
    ("G1", 5): (13.136, 0.026),
    ("G1", 10): (15.624, 0.031),
    ("G1", 20): (19.693, 0.039),
    ("G1", 40): (30.13, 0.06),
    ("G1", 80): (48.98, 0.098),
}
"""Crossover of the continuum from a uniform start and how far a right value may be off.

A scheme with the mass at the cells' midpoints and fixed steps, at two mesh widths; G0 at beta = 10
and 80 by weighted particles graded towards the unstable angle (`graded_particles`).
"""

W2_MINIMUM = {
    ("G0", 20): (20.4, 0.192),
    ("G0", 40): (30.1, 0.0837),
    ("G1", 5): (9.7, 0.2245),
    ("G1", 10): (11.4, 0.2071),
    ("G1", 20): (13.2, 0.1806),
    ("G1", 40): (15.2, 0.1455),
    ("G1", 80): (17.8, 0.1109),
    ("G1", 160): (21.1, 0.0782),
}
"""Time and value of the least W2 to the metastable target before the crossover, same scheme."""


def graded_particles(centre, finest, per_unit):
    """Weighted tokens for the uniform law, dense near +-centre: angle = centre + finest sinh(u).

    The flow expands the neighbourhood of an unstable angle exponentially; tokens graded towards it
    still resolve the tail that is left late. Trapezoidal in u, so the masses are d angle / d u.
    """
    top = np.arcsinh(np.pi / 2 / finest)
    n = int(2 * top * per_unit)
    u = ((np.arange(n) + 0.5) / n * 2 - 1) * top
    half = np.stack([np.cos(centre + finest * np.sinh(u)), np.sin(centre + finest * np.sinh(u))])
    tokens, mass = np.concatenate([half, -half], axis=1).T, np.tile(np.cosh(u), 2)
    return tokens, mass / mass.sum()
