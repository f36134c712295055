import copy
import hashlib
import math
import re
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfsweep import Weights
from mfsweep._errors import InputError
from mfsweep.sweep import grid as grid_module
from mfsweep.sweep.config import Config, Time
from mfsweep.sweep.grid import (
    Cell,
    Shard,
    cell_digest,
    collect_digest,
    config_digest,
    figures_digest,
    shards,
    simulate_digest,
    times,
)

BASE = {
    "run": "x",
    "grid": {
        "family": ["aligned", "control"],
        "d": [3, 2],
        "gap": [0.5, 0.25],
        "n_tokens": [8, 4],
        "beta": [16, 8, math.inf],
        "seed": [5, 0],
    },
    "families": {"aligned": {"kind": "aligned"}, "control": {"kind": "identity"}},
    "time": {"t_end": 6.0, "n_times": 3},
}


def configured(**sections):
    """BASE with sections updated key by key."""
    document = copy.deepcopy(BASE)
    for section, keys in sections.items():
        if isinstance(keys, dict):
            document[section] = document.get(section, {}) | keys
        else:
            document[section] = keys
    return Config.model_validate(document)


def digests(config):
    per_shard = {s.id: (cell_digest(config, s), simulate_digest(config, s)) for s in shards(config)}
    return {
        "id": tuple(per_shard),
        "cell": tuple(cell for cell, _ in per_shard.values()),
        "simulate": tuple(simulate for _, simulate in per_shard.values()),
        "collect": collect_digest(config),
        "figures": figures_digest(config),
        "config": config_digest(config),
    }


def differing(one, other):
    first, second = digests(one), digests(other)
    return {name for name in first if first[name] != second[name]}


def test_shards_are_the_product_in_order_with_betas_and_seeds_ascending():
    found = [(s.family, s.d, s.gap, s.n_tokens) for s in shards(configured())]
    assert found == [
        (family, d, gap, n_tokens)
        for family in ("aligned", "control")
        for d in (2, 3)
        for gap in (0.25, 0.5)
        for n_tokens in (4.0, 8.0)
    ]
    assert {s.betas for s in shards(configured())} == {(8.0, 16.0, math.inf)}
    assert {s.seeds for s in shards(configured())} == {(0, 5)}


def test_cells_hold_the_shard_and_run_over_beta_then_seed():
    shard = Shard("a", 2, 0.5, 4.0, (1.0, 2.0), (0, 7))
    assert list(shard.cells()) == [
        Cell("a", 2, 0.5, 4.0, beta, seed) for beta in (1.0, 2.0) for seed in (0, 7)
    ]


def test_overrides_reach_the_shards():
    narrow = {"family": "control", "d": [2], "n_tokens": [6], "beta": [1], "seed": 1}
    control = [s for s in shards(configured(overrides=[narrow])) if s.family == "control"]
    assert [(s.d, s.gap, s.n_tokens, s.betas, s.seeds) for s in control] == [
        (2, gap, 6.0, (1.0,), (0,)) for gap in (0.25, 0.5)
    ]


def test_ids_are_short_safe_in_paths_distinct_and_pinned():
    ids = [shard.id for shard in shards(configured())]
    assert len(set(ids)) == len(ids)
    assert all(
        re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,31}-d[0-9]{1,4}-[0-9a-f]{12}", i) for i in ids
    )


def test_an_id_is_label_d_and_the_hash_of_the_exact_coordinates():
    text = b'["aligned",2,"0x1.0000000000000p-2","0x1.0000000000000p+10"]'
    place = hashlib.blake2b(text, digest_size=8).hexdigest()[:12]
    assert Shard("aligned", 2, 0.25, 1024.0, (8.0,), (0,)).id == f"aligned-d2-{place}"
    assert place == "b901b60ffa3f"


@pytest.mark.parametrize(
    "other",
    [
        Shard("b", 2, 0.25, 8.0, (1.0,), (0,)),
        Shard("a", 3, 0.25, 8.0, (1.0,), (0,)),
        Shard("a", 2, math.nextafter(0.25, 1), 8.0, (1.0,), (0,)),
        Shard("a", 2, 0.25, 9.0, (1.0,), (0,)),
        Shard("a", 2, 0.25, math.inf, (1.0,), (0,)),
    ],
)
def test_every_coordinate_of_a_shard_enters_its_id(other):
    assert other.id != Shard("a", 2, 0.25, 8.0, (1.0,), (0,)).id


@given(
    betas=st.sets(st.floats(0.01, 1e6), max_size=5),
    seeds=st.sets(st.integers(0, 2**32 - 1), max_size=5),
)
def test_growing_beta_and_seed_keeps_ids_and_cell_digests(betas, seeds):
    grown = configured(
        grid={
            "beta": sorted({8.0, 16.0, math.inf} | betas),
            "seed": sorted({0, 5} | seeds),
        }
    )
    assert differing(configured(), grown) <= {"simulate", "collect", "config"}


@given(
    gaps=st.sets(st.floats(0.01, 0.99), max_size=3),
    tokens=st.sets(st.integers(2, 99), max_size=3),
    d=st.sets(st.integers(2, 9), max_size=3),
)
def test_growing_the_other_axes_keeps_every_old_shard_and_its_digests(gaps, tokens, d):
    axes = {"gap": {0.25, 0.5} | gaps, "n_tokens": {4, 8} | tokens, "d": {2, 3} | d}
    grown = configured(grid={axis: sorted(values) for axis, values in axes.items()})
    old, new = configured(), grown
    simulated = {(s.id, simulate_digest(old, s)) for s in shards(old)}
    assert simulated <= {(s.id, simulate_digest(new, s)) for s in shards(new)}


NUMBERS = {"cell", "simulate", "collect", "config"}


@pytest.mark.parametrize(
    ("sections", "changes"),
    [
        ({"figures": {"dpi": 151}}, {"figures", "config"}),
        ({"figures": {"formats": ["pdf"]}}, {"figures", "config"}),
        ({"laws": {"ess_threshold": 26.0}}, {"collect", "config"}),
        ({"run": "y"}, {"config"}),
        ({"families": {"spare": {"kind": "generic"}}}, {"config"}),
        ({"solver": {"rtol": 1e-7}}, NUMBERS),
        ({"solver": {"atol": 1e-7}}, NUMBERS),
        ({"solver": {"method": "bs32"}}, NUMBERS),
        ({"time": {"t_end": 7.0}}, NUMBERS),
        ({"time": {"n_times": 4}}, NUMBERS),
        ({"store": {"dtype": "float32"}}, NUMBERS),
        ({"initial": {"sampling": "qmc"}}, NUMBERS),
        ({"initial": {"distribution": "vmf", "kappa": 1.0, "tilt": 0.5}}, NUMBERS),
        ({"families": {"aligned": {"kind": "aligned", "b": [2.0, 0.6]}}}, NUMBERS),
        ({"families": {"aligned": {"kind": "aligned", "weights_seed": 1}}}, NUMBERS),
        ({"families": {"aligned": {"kind": "aligned", "bulk": "linear"}}}, NUMBERS),
        ({"grid": {"beta": [8, 16]}}, {"simulate", "collect", "config"}),
        ({"grid": {"seed": 2}}, {"simulate", "collect", "config"}),
        ({"grid": {"gap": [0.5]}}, {"id", *NUMBERS}),
        ({}, set()),
        ({"solver": {"rtol": "1e-6"}, "laws": {"ess_threshold": 25}}, set()),
        ({"grid": {"beta": [math.inf, "8", 16.0], "seed": [0, 5], "d": [2, 3]}}, set()),
    ],
)
def test_each_change_of_a_key_changes_the_digests_that_depend_on_it_and_no_other(sections, changes):
    assert differing(configured(), configured(**sections)) == changes


def test_an_option_of_one_family_leaves_the_shards_of_the_others_alone():
    other = configured(families={"aligned": {"kind": "aligned", "b": [3.0, 0.5]}})
    for one, two in zip(shards(configured()), shards(other), strict=True):
        same = simulate_digest(configured(), one) == simulate_digest(other, two)
        assert same == (one.family == "control")


def test_another_numerics_version_makes_every_cell_stale(monkeypatch):
    before = digests(configured())
    monkeypatch.setattr(grid_module, "NUMERICS_VERSION", grid_module.NUMERICS_VERSION + 1)
    after = digests(configured())
    assert not set(before["cell"]) & set(after["cell"])
    assert before["figures"] == after["figures"]


def test_a_cell_digest_is_the_hash_of_what_settles_its_numbers_in_canonical_json():
    text = (
        '{"dtype":"float64","family":{"b":[2.0,0.5],"bulk":"isotropic","kind":"aligned",'
        '"multiplicity":1,"weights_seed":0},"initial":{"components":[],'
        '"distribution":"uniform","kappa":null,"path":null,'
        f'"sampling":"iid","tilt":null}},"numerics":{grid_module.NUMERICS_VERSION},'
        '"place":[2,0.25,4.0],"solver":{"atol":1e-09,"merge_radius":1e-06,"method":"dopri5",'
        '"rtol":1e-06,"step":null},'
        '"time":{"n_times":3,"t_end":6.0}}'
    )
    config = configured()
    expected = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    assert cell_digest(config, shards(config)[0]) == expected


def test_the_digest_of_the_continuum_holds_what_it_depends_on_alone():
    text = (
        '{"dtype":"float64","family":{"b":[2.0,0.5],"bulk":"isotropic","kind":"aligned",'
        '"multiplicity":1,"weights_seed":0},"initial":{"components":[],'
        '"distribution":"uniform","kappa":null,"path":null,'
        f'"tilt":null}},"numerics":{grid_module.NUMERICS_VERSION},'
        '"place":[2,0.25,Infinity],"solver":{"atol":1e-09,"resolution":0.5,"rtol":1e-06},'
        '"time":{"n_times":3,"t_end":6.0}}'
    )
    config = configured(grid={"d": [2], "n_tokens": [math.inf]})
    expected = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    assert cell_digest(config, shards(config)[0]) == expected


@pytest.mark.parametrize(
    ("sections", "stale"),
    [
        ({"solver": {"resolution": 0.25}}, [math.inf]),
        ({"solver": {"method": "bs32"}}, [4.0]),
        ({"solver": {"merge_radius": 0.0}}, [4.0]),
        ({"initial": {"sampling": "qmc"}}, [4.0]),
        ({"solver": {"rtol": 1e-7}}, [4.0, math.inf]),
        ({"grid": {"seed": [0, 7]}}, [4.0]),
        ({"grid": {"seed": [5]}}, [4.0, math.inf]),
    ],
)
def test_a_change_makes_particles_or_the_continuum_stale(sections, stale):
    both = {"d": [2], "gap": [0.25], "family": ["aligned"], "n_tokens": [4, math.inf]}
    one = configured(grid=both)
    other = configured(**{**sections, "grid": both | sections.get("grid", {})})
    changed = [
        first.n_tokens
        for first, second in zip(shards(one), shards(other), strict=True)
        if simulate_digest(one, first) != simulate_digest(other, second)
    ]
    assert changed == stale


def test_every_digest_is_sixteen_hex_digits():
    found = digests(configured())
    several = [*found["cell"], *found["simulate"]]
    for digest in [*several, found["collect"], found["figures"], found["config"]]:
        assert re.fullmatch("[0-9a-f]{16}", digest)


def file_config(path, **sections):
    families = {"G": {"kind": "file", "path": str(path)}}
    grid = {"family": ["G"], **sections.pop("grid", {})}
    return configured(grid=grid, families=families, **sections)


def test_a_file_family_is_one_place_with_measured_d_and_gap(tmp_path):
    v = np.diag([1.0, 0.7, 0.1])
    np.savez(tmp_path / "G.npz", V=v, B=np.eye(3))
    found = shards(file_config(tmp_path / "G.npz"))
    assert [(s.family, s.d, s.gap, s.n_tokens) for s in found] == [
        ("G", 3, 0.3, 4.0),
        ("G", 3, 0.3, 8.0),
    ]
    assert Weights(v, np.eye(3)).gap != 0.3, "the gap is rounded, or this test shows nothing"


def test_a_file_enters_digests_by_content_and_not_by_path(tmp_path):
    paths = [tmp_path / name for name in ("one.npz", "two.npz", "three.npz")]
    for path, low in zip(paths, (0.5, 0.5, 0.25), strict=True):
        np.savez(path, V=np.diag([1.0, low]), B=np.eye(2))
    one, two, three = (file_config(path) for path in paths)
    assert differing(one, two) == set()
    assert differing(one, three) == {"id", *NUMBERS}


def test_the_digest_of_a_file_family_holds_what_is_not_left_out(tmp_path):
    np.savez(tmp_path / "G.npz", V=np.diag([1.0, 0.7, 0.1]), B=np.eye(3))
    content = hashlib.blake2b((tmp_path / "G.npz").read_bytes(), digest_size=8).hexdigest()
    options = {"kind": "file", "path": str(tmp_path / "G.npz")}
    for more, told, place in (
        ({}, "", "3,0.3"),
        ({"scale": "raw"}, "", "3,0.3"),
        ({"span": 2}, ',"span":2', "2,0.3"),
        ({"scale": "unit", "span": 2}, ',"scale":"unit","span":2', "2,0.3"),
    ):
        config = configured(grid={"family": ["G"]}, families={"G": options | more})
        text = (
            f'{{"dtype":"float64","family":{{"content":"{content}","kind":"file"{told}}},'
            '"initial":{"components":[],"distribution":"uniform","kappa":null,"path":null,'
            f'"sampling":"iid","tilt":null}},"numerics":{grid_module.NUMERICS_VERSION},'
            f'"place":[{place},4.0],"solver":{{"atol":1e-09,"merge_radius":1e-06,'
            '"method":"dopri5","rtol":1e-06,"step":null},"time":{"n_times":3,"t_end":6.0}}'
        )
        expected = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        assert cell_digest(config, shards(config)[0]) == expected


def test_the_gap_is_that_of_the_scaled_and_restricted_weights(tmp_path):
    np.savez(tmp_path / "G.npz", V=np.diag([2.0, 0.8, 1.0]), B=4 * np.eye(3))
    family = {"kind": "file", "path": str(tmp_path / "G.npz"), "scale": "unit", "span": 2}
    config = configured(grid={"family": ["G"]}, families={"G": family})
    assert {(shard.d, shard.gap) for shard in shards(config)} == {(2, 0.5)}


def test_a_span_that_cannot_hold_e_is_refused_by_its_key(tmp_path):
    turn = np.array([[1.0, -0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.1]])
    b = np.array([[1.0, 0.0, 0.5], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    np.savez(tmp_path / "G.npz", V=turn @ np.linalg.inv(b).T, B=b)
    family = {"kind": "file", "path": str(tmp_path / "G.npz"), "span": 2}
    config = configured(grid={"family": ["G"]}, families={"G": family})
    with pytest.raises(InputError, match=r"^families\.G\.path = 'G\.npz': span = 2: E, "):
        shards(config)


def test_tokens_of_another_dimension_than_the_weights_are_refused(tmp_path):
    np.savez(tmp_path / "G.npz", V=np.diag([1.0, 0.5, 0.1]), B=np.eye(3))
    for width, fits in ((3, True), (2, False)):
        np.savez(tmp_path / f"{width}.npz", tokens=np.eye(9, width) + 1)
        start = {"distribution": "file", "path": str(tmp_path / f"{width}.npz")}
        for span in ({}, {"span": 2}):
            family = {"kind": "file", "path": str(tmp_path / "G.npz"), **span}
            config = configured(grid={"family": ["G"]}, families={"G": family}, initial=start)
            if fits:
                assert len(shards(config)) == 2
                continue
            line = r"^initial\.path = '2\.npz': its tokens have d = 2, .* has d = 3; give files"
            with pytest.raises(InputError, match=line):
                shards(config)


def test_a_file_that_is_rewritten_changes_the_digests(tmp_path):
    np.savez(tmp_path / "G.npz", V=np.diag([1.0, 0.5]), B=np.eye(2))
    config = file_config(tmp_path / "G.npz")
    before = config_digest(config)
    np.savez(tmp_path / "G.npz", V=np.diag([1.0, 0.5]), B=np.diag([1.0, 3.0]), more=np.eye(2))
    assert config_digest(config) != before


@pytest.mark.parametrize(
    "arrays",
    [{}, {"V": np.eye(2)}, {"V": np.eye(2), "B": np.eye(3)}, {"V": [[np.nan]], "B": [[1]]}],
)
def test_a_weights_file_without_weights_is_refused_by_its_key(tmp_path, arrays):
    np.savez(tmp_path / "G.npz", **arrays)
    with pytest.raises(InputError) as caught:
        shards(file_config(tmp_path / "G.npz"))
    assert str(caught.value).startswith("families.G.path = ")
    assert len(str(caught.value)) <= 300


def test_a_weights_file_that_vanished_is_refused_by_its_key(tmp_path):
    np.savez(tmp_path / "G.npz", V=np.diag([1.0, 0.5]), B=np.eye(2))
    config = file_config(tmp_path / "G.npz")
    (tmp_path / "G.npz").unlink()
    for digest in (config_digest, collect_digest):
        with pytest.raises(InputError, match=r"^families\.G\.path = "):
            digest(config)


def test_equispaced_tokens_need_a_file_with_d_2(tmp_path):
    for d in (2, 3):
        np.savez(tmp_path / f"{d}.npz", V=np.diag([1.0, 0.5, 0.5][:d]), B=np.eye(d))
    start = {"sampling": "equispaced"}
    assert len(shards(file_config(tmp_path / "2.npz", initial=start))) == 2
    with pytest.raises(InputError, match="equispaced needs d = 2"):
        shards(file_config(tmp_path / "3.npz", initial=start))


@given(t_end=st.floats(1e-3, 1e6), n_times=st.integers(2, 2000))
def test_times_are_the_rounded_fractions_of_t_end_and_end_there(t_end, n_times):
    saved = times(Time(t_end=t_end, n_times=n_times))
    exact = np.array([float(Fraction(t_end) * i / (n_times - 1)) for i in range(n_times)])
    assert np.all(np.abs(saved - exact) <= np.spacing(exact))
    assert saved[0] == 0.0
    assert saved[-1] == t_end
    assert np.all(np.diff(saved) > 0)


def test_a_hundred_thousand_cells_in_a_thousand_shards_take_under_two_seconds():
    gaps = [i / 300 for i in range(1, 251)]
    config = configured(grid={"gap": gaps, "n_tokens": [4], "seed": 10, "beta": list(range(1, 11))})
    start = time.process_time()
    found = shards(config)
    for shard in found:
        simulate_digest(config, shard)
    collect_digest(config)
    elapsed = time.process_time() - start
    assert len({shard.id for shard in found}) == 1000
    assert sum(len(list(shard.cells())) for shard in found) == 100_000
    assert elapsed < 2


def test_a_token_file_enters_the_digest_by_its_content(tmp_path):
    digests_of = []
    for name, rows in (("one", 3), ("copy", 3), ("other", 4)):
        np.savez(tmp_path / f"{name}.npz", tokens=np.ones((rows, 2)))
        start = {"distribution": "file", "path": str(tmp_path / f"{name}.npz")}
        config = configured(initial=start)
        digests_of.append((cell_digest(config, shards(config)[0]), digests(config)["config"]))
    assert digests_of[0] == digests_of[1]
    assert digests_of[0][0] != digests_of[2][0]
    assert digests_of[0][1] != digests_of[2][1]
