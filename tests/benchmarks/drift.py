"""Speed of the drift against blocked NumPy, as a ratio in one run on one thread.

Run from the repository's root: python tests/benchmarks/drift.py
"""

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import time

import numpy as np

from mfsweep import initial_tokens, softmax_drift, weights_with_gap
from mfsweep.dynamics.kernels import neighbour_order

WANTED = 4.0
PAIRS_OF_RUNS = 7


def blocked_numpy(x, weights, beta, rows=256):
    """Drift with blocks of the (n, n) matrix, as careful scripts compute it."""
    velocity = np.empty_like(x)
    query = beta * x @ weights.B
    for i in range(0, len(x), rows):
        logits = query[i : i + rows] @ x.T
        attention = np.exp(logits - logits.max(axis=1, keepdims=True))
        average = attention @ x / attention.sum(axis=1, keepdims=True)
        push = average @ weights.V.T
        block = x[i : i + rows]
        velocity[i : i + rows] = push - np.sum(block * push, axis=1, keepdims=True) * block
    return velocity


def seconds(function, *arguments):
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def compare(d, beta, n=4096):
    """Median of the ratios of neighbouring runs, and the largest difference."""
    weights = weights_with_gap(d, 0.5, family="aligned", seed=0)
    x, _ = initial_tokens(n, d, seed=1)
    x = x[neighbour_order(x)]
    difference = np.abs(softmax_drift(x, weights, beta) - blocked_numpy(x, weights, beta)).max()
    times = [
        (seconds(softmax_drift, x, weights, beta), seconds(blocked_numpy, x, weights, beta))
        for _ in range(PAIRS_OF_RUNS)
    ]
    ours, theirs = np.median(times, axis=0) / n**2 * 1e9
    return np.median([b / a for a, b in times]), ours, theirs, difference


def main():
    print(
        f"{'d':>2} {'beta':>6} {'mfsweep':>9} {'NumPy':>9} {'ratio':>6} {'wanted':>6} {'diff':>8}"
    )
    for d in (2, 3):
        for beta in (0.1, 8.0, 64.0, 512.0):
            ratio, ours, theirs, difference = compare(d, beta)
            print(
                f"{d:2d} {beta:6g} {ours:6.2f} ns {theirs:6.2f} ns {ratio:6.1f} {WANTED:6.1f} "
                f"{difference:8.1e}"
            )


if __name__ == "__main__":
    main()
