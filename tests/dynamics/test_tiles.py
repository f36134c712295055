import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import on_sphere, seeds

from mfsweep.dynamics.tiles import caps_of, equal_runs, neighbour_tree, reach, reach_of_block


@st.composite
def two_clouds(draw):
    """Queries of many lengths and unit keys, each in a cluster of any width: (q, y)."""
    rng = np.random.default_rng(draw(seeds))
    d = draw(st.sampled_from([2, 3, 7]))
    clouds = []
    for _ in range(2):
        centre = on_sphere(rng, 1, d)
        cloud = centre + 10.0 ** draw(st.floats(-9, 1)) * rng.standard_normal((20, d))
        clouds.append(cloud / np.linalg.norm(cloud, axis=1, keepdims=True))
    return 10.0 ** draw(st.floats(-2, 5)) * rng.uniform(0.1, 1, (20, 1)) * clouds[0], clouds[1]


@given(two_clouds())
def test_no_logit_passes_the_bound_of_its_cap(clouds):
    q, y = clouds
    length = np.linalg.norm(q, axis=1)
    keys, rows = (caps_of(x, np.ones(20), equal_runs(20, 20)) for x in (y, q / length[:, None]))
    logits, slack = q @ y.T, 1e-14 * length
    for i in range(20):
        bound = reach(q[i] @ keys.centre[0], length[i], keys.cosine[0], keys.sine[0])
        assert logits[i].max() <= bound + slack[i]
        assert bound <= length[i]
    caps = [(cap.cosine[0], cap.sine[0]) for cap in (rows, keys)]
    along = float(rows.centre[0] @ keys.centre[0])
    bound = reach_of_block(along, length.min(), length.max(), *caps)
    assert logits.max() <= bound + slack.max()


def test_the_bound_is_met_by_a_cap_of_one_point():
    y, q = np.array([[0.6, 0.8]]), np.array([30.0, 0.0])
    caps = caps_of(y, np.ones(1), equal_runs(1, 1))
    assert reach(q @ caps.centre[0], 30.0, caps.cosine[0], caps.sine[0]) == pytest.approx(18.0)


@pytest.mark.parametrize(("n", "d"), [(1, 2), (64, 2), (65, 3), (5000, 3), (300, 20)])
def test_a_tree_halves_down_to_single_rows(n, d):
    x = on_sphere(np.random.default_rng(n), n, d)
    tree = neighbour_tree(x, 64)
    assert np.array_equal(np.sort(tree.order), np.arange(n))
    assert (tree.first[0], tree.last[0]) == (0, n)
    size = tree.last - tree.first
    inner = np.flatnonzero(tree.child)
    assert np.array_equal(np.flatnonzero(size > 1), inner)
    left, right = tree.child[inner], tree.child[inner] + 1
    assert np.array_equal(tree.first[left], tree.first[inner])
    assert np.array_equal(tree.last[left], tree.first[right])
    assert np.array_equal(tree.last[right], tree.last[inner])
    assert tree.starts[0] == 0
    assert tree.starts[-1] == n
    assert np.diff(tree.starts).max() <= 64


def test_tiles_are_compact():
    x = on_sphere(np.random.default_rng(3), 5000, 3)
    tree = neighbour_tree(x, 64)
    caps = caps_of(x[tree.order], np.ones(5000), tree.starts)
    assert len(caps.cosine) == 79  # whole tiles but the last
    assert np.degrees(np.arccos(caps.cosine)).mean() < 25  # equal squares would have 16


def test_clusters_far_apart_share_no_tile():
    rng = np.random.default_rng(0)
    centres = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    cluster = rng.integers(0, 3, 1000)
    x = centres[cluster] + 1e-3 * rng.standard_normal((1000, 3))
    tree = neighbour_tree(x, 64)
    for start, stop in zip(tree.starts[:-1], tree.starts[1:], strict=True):
        assert len(set(cluster[tree.order[start:stop]])) == 1


def test_equal_rows_are_no_trouble():
    tree = neighbour_tree(np.ones((500, 3)), 64)
    assert np.array_equal(np.sort(tree.order), np.arange(500))
