import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from mfsweep import Weights, softmax_drift, zero_temperature_drift
from mfsweep.dynamics.cells import (
    Cells,
    binned_density,
    concentrate,
    exponential_moments,
    exponential_rate,
    fill_exponential,
    unfold,
)
from mfsweep.dynamics.density import VonMises
from mfsweep.dynamics.meanfield import edge_velocity, point_velocity
from mfsweep.dynamics.mesh import JOIN, WidthRule, initial_cells

V = np.array([[0.9, 0.3], [-0.2, 0.4]])
B = np.array([[1.5, 0.2], [0.6, 0.8]])
WHOLE, QUARTER = 2 * np.pi, np.pi / 2


def moments(cells):
    """Moments 0 to 3 of the angle over all cells."""
    angle, log_mass = cells.points()
    return np.array([np.exp(log_mass) @ angle**p for p in range(4)])


def remesh(rule, cells):
    """Join and cut cells in a flow at rest."""
    return rule.remesh(cells, np.zeros(cells.edges.size), 1.0)


def irregular(count, log_range, seed=0, period=WHOLE):
    """Cells of unequal widths whose points and log-masses are random."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(0.1, 1.0, count))])
    log_mass = rng.uniform(-log_range, 0.0, (2, count))
    eta = np.sort(rng.normal(size=(2, count)), axis=0)
    return Cells(edges * period / edges[-1], eta, log_mass - np.logaddexp.reduce(log_mass.ravel()))


@pytest.mark.parametrize("g", [-300.0, -20.0, -0.7, -0.29, 1e-9, 0.1, 0.31, 5.0, 79.0, 1e6])
def test_moments_of_the_exponential_agree_with_quadrature(g):
    end = 1.0 if g > 0 else 0.0
    scale = 1 / max(1.0, abs(g))  # all of the mass lies within 60 / |g| of that end
    low, high = sorted([end, min(max(end - np.sign(g) * 60 * scale, 0.0), 1.0)])

    def integral(f):
        return quad(lambda x: f(x) * math.exp(g * (x - end)), low, high, epsrel=1e-12)[0]

    mass = integral(lambda _: 1.0)
    mean = integral(lambda x: x) / mass
    central = (integral(lambda x, p=p: (x - mean) ** p) / mass for p in (2, 3))
    for value, expected in zip(exponential_moments(g), (mean, *central), strict=True):
        assert value == pytest.approx(expected, rel=1e-8, abs=1e-10 * scale**3)


@given(st.floats(-1e6, 1e6))
def test_rate_of_an_exponential_is_found_from_its_mean(g):
    mean = exponential_moments(g)[0]
    assert abs(exponential_moments(exponential_rate(mean))[0] - mean) < 1e-13


@given(st.lists(st.floats(0.001, 0.999), min_size=2, max_size=8), st.integers(0, 99))
def test_two_points_have_the_moments_of_many_and_lie_among_them(positions, seed):
    xi = np.array(positions)
    share = np.random.default_rng(seed).dirichlet(np.ones(xi.size))
    cell = np.empty(4)
    concentrate(xi, share, 0.0, cell)
    at, mass = 1 / (1 + np.exp(-cell[:2])), np.exp(cell[2:])
    for p in range(4):
        assert abs(mass @ at**p - share @ xi**p) < 1e-12
    assert xi.min() - 1e-12 < at[0] <= at[1] < xi.max() + 1e-12


@pytest.mark.parametrize("symmetry", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("beta", [3.0, 300.0, math.inf])
def test_edges_move_as_tokens_among_all_images_of_the_masses(symmetry, beta):
    mirrored, antipodal = symmetry
    b = np.diag([1.5, 0.8]) if mirrored else B
    v = np.diag([0.9, 0.4]) if mirrored else V
    domain = irregular(70, 30.0, period=WHOLE / (1 + mirrored) / (1 + antipodal))
    images = (1 + mirrored) * (1 + antipodal)
    domain = Cells(domain.edges, domain.eta, domain.log_mass - math.log(images))
    speed, _ = edge_velocity(domain.edges, domain.eta, domain.log_mass, v, b, beta, *symmetry)
    angle, log_mass = unfold(domain, mirrored=mirrored, antipodal=antipodal).points()
    keys = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x = np.stack([np.cos(domain.edges), np.sin(domain.edges)], axis=1)
    if math.isinf(beta):
        drift = zero_temperature_drift(x, Weights(v, b))
    else:
        everyone = np.concatenate([x, keys])
        mass = np.concatenate([np.full(len(x), 1e-200), np.exp(log_mass)])
        drift = softmax_drift(everyone, Weights(v, b), beta, mass=mass)[: len(x)]
    expected = x[:, 0] * drift[:, 1] - x[:, 1] * drift[:, 0]
    np.testing.assert_allclose(speed, expected, atol=1e-12)


def test_log_masses_far_below_underflow_decide_the_velocity():
    cells = Cells(np.array([0.0, 2.0, 4.0, WHOLE]), np.zeros((2, 3)), np.zeros((2, 3)))
    cells.log_mass[:] = np.array([-2000.0, -4000.0, -900.0])
    speed, _ = edge_velocity(cells.edges, cells.eta, cells.log_mass, V, B, 500.0, False, False)
    shifted, _ = edge_velocity(
        cells.edges, cells.eta, cells.log_mass + 900.0, V, B, 500.0, False, False
    )
    np.testing.assert_allclose(speed, shifted, rtol=1e-12)


def test_points_move_with_a_cubic_velocity_exactly():
    cells = irregular(9, 1.0)
    roots = np.array([0.0, 3.0, WHOLE])

    def cubic(theta):  # agrees with its periodic continuation at both ends only
        return 0.1 * np.prod(theta[..., None] - roots, axis=-1)

    inner = slice(1, -1)
    eta_speed = point_velocity(cells.edges, cubic(cells.edges), cells.eta, False)[:, inner]
    xi, h = 1 / (1 + np.exp(-cells.eta)), np.diff(cells.edges)
    angle = cells.edges[:-1] + xi * h
    ends = cubic(cells.edges)
    relative = (cubic(angle) - ends[:-1] - xi * np.diff(ends)) / h
    np.testing.assert_allclose(eta_speed, (relative / (xi * (1 - xi)))[:, inner], rtol=1e-9)


def test_a_mirror_is_seen_by_the_points_beside_it():
    domain = irregular(9, 1.0, period=QUARTER)
    whole = unfold(domain, mirrored=True, antipodal=True)
    speed, inner = (np.sin(2 * c.edges) for c in (domain, whole)), []
    for cells, a, mirrored in zip((domain, whole), speed, (True, False), strict=True):
        inner.append(point_velocity(cells.edges, a, cells.eta, mirrored))
    np.testing.assert_allclose(inner[0], inner[1][:, :9], atol=1e-12)


def test_joining_keeps_moments_and_cutting_keeps_mass_and_mean():
    cells = irregular(400, 20.0)
    before = moments(cells)
    wide = WidthRule(np.eye(2), 1.0, 1.0, 0.5)
    joined = remesh(wide, cells)
    assert joined.edges.size < cells.edges.size / 4
    np.testing.assert_allclose(moments(joined), before, rtol=1e-12)
    laid = initial_cells(VonMises(1.0, 3.0).log, wide, WHOLE)
    cut = remesh(WidthRule(np.eye(2), 1.0, 0.1, 0.5), laid)
    assert cut.edges.size > 7 * laid.edges.size
    np.testing.assert_allclose(moments(cut)[:2], moments(laid)[:2], rtol=1e-12)


def test_every_width_is_allowed_after_remeshing_and_a_good_mesh_is_left_alone():
    rule = WidthRule(B, 50.0, 0.5, 0.1)
    cells = remesh(rule, irregular(40, 5.0))
    reach = np.linalg.norm(np.stack([np.cos(cells.edges), np.sin(cells.edges)], 1) @ B, axis=1)
    allowed = 0.5 * np.minimum(0.1, (50.0 * reach) ** -0.5)
    width = np.diff(cells.edges)
    assert (width < 1.02 * np.maximum(allowed[1:], allowed[:-1])).all()
    assert np.mean(width < JOIN * allowed[1:]) < 0.1
    assert remesh(rule, cells) is cells


def test_lumped_mass_stays_where_it_is_when_its_cell_is_cut():
    eta = np.array([[0.0, -1e-9, 0.0], [0.0, 1e-9, 0.0]])
    cells = Cells(np.array([0.0, 1.0, 3.0, 4.0]), eta, np.array([[-30.0, -0.7, -30.0]] * 2))
    cut = remesh(WidthRule(np.eye(2), 0.0, 1.0, 1.0), cells)
    angle, log_mass = cut.points()
    assert np.exp(log_mass) @ (np.abs(angle - 2.0) > 1e-8) < 1e-11
    np.testing.assert_allclose(moments(cut)[0], moments(cells)[0], rtol=1e-13)


def test_a_part_of_a_lumped_cell_without_points_takes_its_neighbours_density():
    eta = np.array([[0.0, 2.0, 0.0], [0.0, 2.0, 0.0]])
    cells = Cells(np.array([0.0, 1.0, 3.0, 4.0]), eta, np.array([[-30.0, -0.7, -50.0]] * 2))
    cut = remesh(WidthRule(np.eye(2), 0.0, 1.0, 1.0), cells)
    empty = np.exp(cut.cell_log_mass[1])
    np.testing.assert_allclose(empty, 2 * np.exp(-30.0), rtol=1e-12)
    np.testing.assert_allclose(moments(cut)[0], moments(cells)[0], rtol=1e-13)


@pytest.mark.parametrize(
    ("jump", "pieces", "empty"),
    [
        (0.002, 1, 0),  # rate 0.2 |V|: narrower than h, the velocity changes by less than 0.3 h
        (0.008, 2, 0),  # rate 0.8: it changes by more
        (0.4, 3, 1),  # rate 40: too fast to be followed
    ],
)
def test_a_steep_rise_of_the_velocity_narrows_cells_and_a_jump_tears_them(jump, pieces, empty):
    h, edges = 0.02 if jump < 0.1 else 1.0, 0.01 * np.arange(4)
    eta = np.tile([[-1.3], [1.3]], 3)
    cells = Cells(edges, eta, np.log([[0.2, 0.1, 0.2], [0.3, 0.1, 0.1]]))
    velocity = np.array([0.0, 0.0, jump, jump])
    cut = WidthRule(np.eye(2), 0.0, 1.0, h).remesh(cells, velocity, 1.0)
    assert len(cut.edges) == 3 + pieces
    void = np.flatnonzero(cut.cell_log_mass < -1e200)
    assert len(void) == empty
    for at in void:
        np.testing.assert_allclose(cut.edges[at : at + 2], [0.0125, 0.0175])
    np.testing.assert_allclose(moments(cut)[:2], moments(cells)[:2], rtol=1e-12)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_narrow_cell_beside_a_wide_empty_one_is_widened_and_its_mass_stays(mirrored):
    edges, eta = np.array([0.0, 1e-9, 3.0]), np.array([[-1.0, 0.0], [1.0, 0.0]])
    log_mass = np.array([[-0.5, -1e300], [-1.5, -1e300]])
    if mirrored:
        edges, eta, log_mass = 3.0 - edges[::-1], -eta[::-1, ::-1], log_mass[::-1, ::-1]
    cells = Cells(edges, eta, log_mass)
    wider = remesh(WidthRule(np.eye(2), 0.0, 1.0, 1.0), cells)
    assert np.diff(wider.edges).min() == pytest.approx(0.4)
    assert np.diff(wider.edges).max() > 2.0  # what is empty may be wide
    np.testing.assert_allclose(
        wider.points()[0][2 * mirrored :][:2],
        cells.points()[0][2 * mirrored :][:2],
        rtol=0,
        atol=1e-15,
    )
    np.testing.assert_array_equal(wider.log_mass, cells.log_mass)


def test_bins_hold_the_mass_of_the_exponentials_inside_the_cells():
    laid = np.empty((4, 1))
    fill_exponential(3.0, math.log(0.25), laid[:, 0])
    cells = Cells(np.array([1.0, 1.0 + 4.0]), laid[:2], laid[2:])
    bins = binned_density(cells, axis=4.0, bins=1000)  # the cell runs through angle 0
    assert abs(bins.sum() * WHOLE / 1000 - 0.25) < 1e-14
    centre = WHOLE * (np.arange(1000) + 0.5) / 1000
    s = np.mod(centre - 5.0, WHOLE) / 4.0
    exact = np.where(s < 1, 0.25 * 3 * np.exp(3 * s) / np.expm1(3.0) / 4.0, 0.0)
    assert np.count_nonzero(np.abs(bins - exact) > 2e-5 * exact.max()) <= 2  # the cell's two ends
    np.testing.assert_allclose(moments(cells)[0], 0.25)


def test_initial_cells_hold_the_mass_of_the_density_even_below_underflow():
    law = VonMises(0.5, 2000.0)
    cells = initial_cells(law.log, WidthRule(np.eye(2), 400.0, 0.25, 0.1), WHOLE)
    middle = (cells.edges[1:] + cells.edges[:-1]) / 2
    tail = np.abs(np.cos(middle - 0.5)) < 0.5
    mean = cells.cell_log_mass - np.log(np.diff(cells.edges))
    assert np.abs(mean - law.log(middle))[tail].max() < 30  # over cells 0.0125 wide, slope 2000
    assert cells.cell_log_mass.min() < -3900
    assert abs(moments(cells)[0] - 1) < 1e-12
