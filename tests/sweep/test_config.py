import copy
import json
import math
import re
import subprocess
import sys
from datetime import date
from decimal import Decimal
from itertools import product
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mfsweep._errors import InputError
from mfsweep.sweep.config import Config, Geom, config_schema, load_config
from mfsweep.sweep.config.explain import entries, explain

ROOT = Path(__file__).parents[2]
NAN, INF = math.nan, math.inf
GOOD = {
    "run": "demo",
    "grid": {
        "family": ["aligned", "control"],
        "d": [2, 3],
        "gap": [0.25, 0.5],
        "n_tokens": [64, 128],
        "beta": [8, 16, INF],
        "seed": 3,
    },
    "families": {
        "aligned": {"kind": "aligned", "b": [2.0, 0.5]},
        "control": {"kind": "identity", "weights_seed": 1, "multiplicity": 1, "bulk": "linear"},
        "spare": {"kind": "generic", "condition": 4.0},
        "given": {"kind": "file", "path": "G0.npz"},
    },
    "overrides": [{"family": "control", "d": [2], "gap": 0.5, "n_tokens": [32], "seed": 2}],
    "initial": {"distribution": "vmf", "sampling": "iid", "kappa": 2.0, "tilt": 0.7},
    "time": {"t_end": 60.0, "n_times": 241},
    "solver": {"method": "dopri5", "rtol": 1e-6, "atol": 1e-9, "merge_radius": 1e-6},
    "store": {"dtype": "float64"},
    "laws": {"ess_threshold": 25.0},
    "figures": {"formats": ["png"], "dpi": 150},
}


def changed(path, value):
    """GOOD with the key at a dotted path set to value."""
    document = copy.deepcopy(GOOD)
    *parents, key = (int(step) if step.isdigit() else step for step in path.split("."))
    place = document
    for step in parents:
        place = place[step]
    place[key] = value
    return document


def without(path):
    document = copy.deepcopy(GOOD)
    *parents, key = path.split(".")
    place = document
    for step in parents:
        place = place[step]
    del place[key]
    return document


@pytest.fixture
def load(tmp_path):
    def load(document):
        if isinstance(document, dict):
            document = yaml.safe_dump(document)
        if isinstance(document, str):
            document = document.encode()
        np.savez(tmp_path / "G0.npz", V=np.eye(2), B=np.eye(2))
        (tmp_path / "config.yaml").write_bytes(document)
        return load_config(tmp_path / "config.yaml")

    return load


def refusal(load, document):
    with pytest.raises(InputError) as caught:
        load(document)
    line = str(caught.value)
    assert len(line) <= 300
    assert line.isprintable()
    return line


# What each key must refuse, whatever the others hold.
NO_TEXT = [None, True, 3, 1.5, [], ["a"], {}, {"a": 1}, date(2024, 1, 1), b"a"]
NO_CHOICE = [*NO_TEXT, "", "other", " uniform"]
NO_LIST = [None, True, 2, 0.5, "2", [], {}, {"a": 1}, [None], [True], [[2]], [{}], [NAN], [-INF]]
NO_WHOLE = [None, True, 2.5, 10.0, "10", "x", [], [10], {}, NAN, INF, -1, 10**30, date(2024, 1, 1)]
NO_NUMBER = [None, True, "x", "", "nan", "1e999", [], [1.0], {}, NAN, INF, -INF, -1.0, 10**400]
BROKEN = {
    "run": [*NO_TEXT, "", "a b", "a/b", "../a", "-a", ".a", "a" * 65, "é", "a\n", "a\u2028b"],
    "grid": [None, True, 3, "text", [], [1], {}],
    "grid.family": [*NO_LIST, "aligned", ["aligned"] * 2, ["nobody"], ["a b"], ["x" * 33], ["1"]],
    "grid.d": [*NO_LIST, [1], [0], [-2], [4097], [2.0], ["2"], [2, 2], [10**30], [INF]],
    "grid.gap": [*NO_LIST, [0], [1], [-0.1], [1.5], ["x"], [0.5, 0.5], ["0.5", 0.5], [INF]],
    "grid.n_tokens": [
        *NO_LIST,
        [1],
        [0],
        [-4],
        [2.5],
        [10**8],
        ["1e9"],
        [64, 64.0],
        ["x"],
    ],
    "grid.beta": [
        *[bad for bad in NO_LIST if bad != [[2]]],
        *([0], [-3.0], [8, 8.0], ["8", 8], ["1e400"], [10**400], [8, "x"], [0.0], ["-inf"]),
        *({"geom": bad} for bad in ([], [8, 512], [512, 8, 3], [8, 8, 3], [0, 8, 3], [8, INF, 3])),
        *({"geom": bad} for bad in ([8, 512, 1], [8, 512, 2.0], [8, 512, 10**5], "8", None, 7)),
        *({"geo": [8, 512, 7]}, {"geom": [8, 512, 7], "step": 2}, {"geom": [1, 1 + 1e-15, 3]}),
    ],
    "grid.seed": [
        None,
        True,
        0,
        -1,
        2.0,
        "8",
        [],
        {},
        10**12,
        [-1],
        [1.5],
        [2**32],
        [3, 3],
        [True],
    ],
    "families": [None, True, 3, "text", [], [1]],
    "families.aligned": [None, 3, "aligned", [], {}, {"b": [2.0, 0.5]}, {"kind": None}],
    "families.aligned.kind": [*NO_CHOICE, "Aligned"],
    "families.aligned.b": [*NO_LIST, [2.0], [2.0, 0.5, 1.0], [2.0, 0], [2.0, -1], [INF, 1], "2"],
    "families.control.weights_seed": [*NO_WHOLE, 2**32],
    "families.control.multiplicity": [*NO_WHOLE, 0, 2, 5000],
    "families.control.bulk": NO_CHOICE,
    "families.spare.condition": [*NO_NUMBER, 0.5, 0],
    "families.given.path": [
        *NO_TEXT,
        "",
        "none.npz",
        "config.yaml",
        ".",
        "/dev/zero",
        "../G0.npz",
        "a" * 900 + ".npz",
        "none*.npz",
        "*.yaml",
        "**/none/*.npz",
        "[",
    ],
    "families.given.span": [None, True, 1, 0, 5000, 2.0, "2", [2], {}],
    "families.given.scale": [*NO_CHOICE, "Unit"],
    "overrides": [None, True, 3, "text", {}, [{"family": "control", "seed": 2}] * 101],
    "overrides[0]": [None, 3, "text", [], {}, {"family": "control"}, {"d": 2}, {"seed": 3}],
    "overrides[0].family": [*NO_TEXT, "nobody", "spare", ["control"]],
    "overrides[0].d": [None, True, 2.0, "2", [], {}, 1, 5, [5], [2, 5], [2, 2], NAN, 10**30],
    "overrides[0].gap": [None, True, "x", [], {}, 0, 1, 0.3, [0.3], [0.5, 0.5], NAN, INF],
    "overrides[0].n_tokens": [*NO_LIST, 32, [1], [2.5], [64, 64], [10**8]],
    "overrides[0].beta": [None, True, 3, "8", [], {}, [-1], [8, 8.0], {"geom": [8, 4, 2]}],
    "overrides[0].seed": [None, True, 0, -1, 2.0, "8", [], {}, [-1], [2**32], [3, 3]],
    "initial": [None, True, 3, "vmf", []],
    "initial.distribution": NO_CHOICE,
    "initial.sampling": [*NO_CHOICE, "antipodal", "equispaced"],
    "initial.kappa": [*NO_NUMBER, 0],
    "initial.tilt": [*NO_NUMBER, 3.2],
    "initial.components": [None, True, 3, "x", [3], [{"kappa": 1}], [{"kappa": 1}] * 21],
    "initial.path": [None, True, 3, "no.npz", "G0.npz"],
    "time": [None, True, 3, "60", [], {}],
    "time.t_end": [*NO_NUMBER, 0],
    "time.n_times": [*NO_WHOLE, 0, 1, 100_001],
    "solver": [None, True, 3, "dopri5", []],
    "solver.method": [*NO_CHOICE, "heun"],
    "solver.step": [*NO_NUMBER, 0, 0.1],
    "solver.merge_radius": [*NO_NUMBER, 0.02],
    "solver.rtol": [*NO_NUMBER, 0, 1e-13, 0.2],
    "solver.atol": [*NO_NUMBER, 0.2],
    "store": [None, True, 3, "float64", []],
    "store.dtype": [*NO_CHOICE, "float16"],
    "laws": [None, True, 3, []],
    "laws.ess_threshold": [value for value in NO_NUMBER if value != [1.0]],
    "figures": [None, True, 3, "png", []],
    "figures.formats": [*NO_LIST, "png", ["svg"], ["png", "png"], ["PNG"]],
    "figures.dpi": [*NO_WHOLE, 0, 49, 601],
}
MUTANTS = [(key, value) for key, values in BROKEN.items() for value in values]


def test_the_good_config_loads_and_holds_canonical_values(load):
    config = load(GOOD)
    assert config.grid.beta == (8.0, 16.0, INF)
    assert config.grid.seed == (0, 1, 2)
    assert config.grid.n_tokens == (64.0, 128.0)
    assert {type(value) for value in config.grid.n_tokens + config.grid.beta} == {float}
    assert config.families["given"].path.is_absolute()


def test_at_least_three_hundred_mutants():
    assert len(MUTANTS) >= 300


@pytest.mark.parametrize("key", BROKEN)
def test_each_broken_value_is_refused_in_one_line_that_names_its_key(load, key):
    for value in BROKEN[key]:
        line = refusal(load, changed(key.replace("[0]", ".0"), value))
        where = line.split(": ")[0].split(" = ")[0]
        assert where.startswith(key), line
        assert "<" not in where
        assert ": " in line
        assert "; " in line, f"no remedy: {line}"


def test_the_command_line_refuses_every_mutant_before_any_work(tmp_path, capsys):
    from tiny_run import mfsweep

    np.savez(tmp_path / "G0.npz", V=np.eye(2), B=np.eye(2))
    file, results = tmp_path / "config.yaml", tmp_path / "results"
    for i, (key, value) in enumerate(MUTANTS):
        file.write_text(yaml.safe_dump(changed(key.replace("[0]", ".0"), value)))
        verb = ("simulate", "measure", "collect", "status", "prune", "verify")[i % 6]
        assert mfsweep(verb, "--config", file, "--results", results) == 2, (key, value)
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert line.startswith(f"mfsweep: {key}")
        assert len(line) <= 300
        assert out == ""
    assert not results.exists()


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("gird", "grid"),
        ("grid.betta", "beta"),
        ("grid.n_token", "n_tokens"),
        ("families.aligned.bb", "b"),
        ("families.given.bulk", None),
        ("families.given.weights_seed", None),
        ("families.spare.b", None),
        ("overrides.0.seeds", "seed"),
        ("initial.kapa", "kappa"),
        ("time.t_start", None),
        ("solver.rtoll", "rtol"),
        ("store.type", "dtype"),
        ("laws.threshold", "ess_threshold"),
        ("figures.format", "formats"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(load, path, near):
    line = refusal(load, changed(path, 1))
    assert line.startswith(path.replace(".0.", "[0].") + " = 1: unknown key")
    assert near is None or line.endswith(f"did you mean {near}?")


@pytest.mark.parametrize(
    "path",
    [
        *("run", "grid", "families", "time", "time.t_end", "time.n_times"),
        *(f"grid.{axis}" for axis in GOOD["grid"]),
        *("initial.kappa", "initial.tilt", "families.given.path"),
    ],
)
def test_a_missing_required_key_is_named(load, path):
    assert refusal(load, without(path)).startswith(f"{path}: required key is missing")


def test_the_line_holds_key_value_what_is_allowed_and_the_remedy(load):
    line = refusal(load, changed("grid.beta", [8, 16, -3.0]))
    assert line == (
        "grid.beta[2] = -3.0: every beta must be > 0 (or .inf); correct or remove it from grid.beta"
    )


def test_other_mistakes_are_counted_and_only_the_first_is_told(load):
    document = changed("grid.beta", [8, -1, NAN])
    document["solver"]["rtol"] = 7
    line = refusal(load, document)
    assert line.startswith("grid.beta[1] = -1: ")
    assert line.endswith(" (and 2 more)")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "the file = null"),
        (b"- a\n- b\n", "the file = ['a', 'b']"),
        (b"text", "the file = 'text'"),
        (b"\xff\xfer\x00u\x00n\x00", "byte 0 is not UTF-8"),
        ("run: démo".encode("latin-1"), "byte 6 is not UTF-8"),
        ("run: demo".encode("utf-16"), "byte 0 is not UTF-8"),
        (b"run: \x00", "special characters are not allowed"),
        (b"run: [", "line 1"),
        (b"run: demo\nrun: demo", "run (line 2): the key is given twice"),
        (b"grid: {d: [2],\n beta: [1], d: [3]}", "grid.d (line 2): the key is given twice"),
        (b"run: &a demo\ngrid: *a", "grid (line 1): aliases"),
        (b"run: &a [*a]", "aliases"),
        (b"run: !!python/object/apply:os.system [echo]", "could not determine a constructor"),
        (b"run: !!int x", "invalid literal"),
        (b"run: !!timestamp x", "is not the YAML of a config"),
        (b"run: " + b"[" * 5000, "recursion"),
        (b"run: " + b"a" * 1001, "run (line 1): a value may have 1,000 characters"),
        (b"#" * 1_000_001, "more than 1,000,000 bytes"),
        (b"1: 2", "[1] = 2: unknown key"),
        (b"? [a]\n: 2", "is not the YAML of a config"),
        (b"a" * 900 + b": 2", "unknown key"),
    ],
)
def test_text_that_is_no_config_is_refused_in_one_line(load, document, words):
    assert words in refusal(load, document)


@pytest.mark.parametrize("name", ["none.yaml", ".", "none/config.yaml"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path / name)


def test_a_line_about_a_long_path_is_cut_at_three_hundred_characters_with_the_program(tmp_path):
    with pytest.raises(InputError) as caught:
        load_config(tmp_path / ("a" * 200) / ("b" * 200))
    assert len(f"mfsweep: {caught.value}") == 300


GAPS = [i / 10_000 for i in range(1, 9_999)]
HUGE = {
    "shards or more": {"gap": GAPS, "d": list(range(2, 20)), "n_tokens": [4]},
    "shards,": {"gap": GAPS[:999], "n_tokens": list(range(2, 60))},
    "cells": {"beta": {"geom": [1, 1000, 10_000]}, "seed": 10_000},
}


@pytest.mark.parametrize("what", HUGE)
def test_a_huge_grid_is_refused_before_it_is_built(load, what):
    document = copy.deepcopy(GOOD) | {"overrides": []}
    document["grid"] |= HUGE[what]
    line = refusal(load, document)
    assert re.match(rf"grid: asks for [\d,]+ {what}", line)
    assert "shorten grid." in line


def test_the_count_of_cells_that_is_refused_is_the_product_after_overrides(load):
    document = copy.deepcopy(GOOD) | {"overrides": [{"family": "control", "d": [2], "seed": 1}]}
    document["grid"] |= {"beta": {"geom": [1, 10, 100]}, "seed": 10_000}
    # aligned: d 2 x gap 2 x n_tokens 2; control: d 1 x gap 2 x n_tokens 2, one seed
    assert f"{8 * 100 * 10_000 + 4 * 100:,} cells" in refusal(load, document)


@given(low=st.floats(1e-3, 1e3), ratio=st.sampled_from([2, 3, 10]), count=st.integers(2, 12))
def test_geom_is_the_geometric_progression_to_twelve_digits(low, ratio, count):
    values = Geom(geom=(low, low * ratio ** (count - 1), count)).values()
    np.testing.assert_allclose(values, low * float(ratio) ** np.arange(count), rtol=6e-12)


@pytest.mark.parametrize(("low", "ratio"), [(8, 2), (7, 1.5), (0.1, 2.5), (3, 10), (1e-3, 1.25)])
def test_geom_is_the_exact_decimal_progression_however_long(low, ratio):
    steps = [Decimal(repr(low)) * Decimal(repr(ratio)) ** i for i in range(24)]
    twelve = [float(f"{step:.11e}") for step in steps]
    ends = [
        count
        for count in range(2, 25)
        if Decimal(repr(float(steps[count - 1]))) == steps[count - 1]
    ]
    assert len(ends) >= 8
    for count in ends:
        values = Geom(geom=(low, float(steps[count - 1]), count)).values()
        assert values == tuple(twelve[:count])


def test_numbers_may_be_text_where_a_fraction_is_allowed(load):
    document = changed("grid.beta", ["1e1", "8", ".5", "inf"])
    document["solver"]["rtol"] = "1e-3"
    assert load(document).grid.beta == (0.5, 8.0, 10.0, INF)
    assert load(document).solver.rtol == 1e-3


def parts_by_search(config):
    """For each point and key, the last override that selects the point and has the key."""
    found = set()
    grid, overrides = config.grid, config.overrides
    for family, d, gap in product(grid.family, grid.d, grid.gap):
        point = {"family": family, "d": d, "gap": gap}

        def decide(key, point=point):
            for override in reversed(overrides):
                mine = override.model_dump(exclude_none=True)
                scalars = {k: v for k, v in mine.items() if not isinstance(v, tuple)}
                if scalars.items() <= point.items() and isinstance(mine.get(key), tuple):
                    return mine[key]
            return getattr(grid, key)

        if d in decide("d") and gap in decide("gap"):
            found.add((family, d, gap, decide("n_tokens"), decide("beta"), decide("seed")))
    return found


def subset(values):
    return st.lists(st.sampled_from(values), min_size=1, unique=True)


OVERRIDE = st.fixed_dictionaries(
    {},
    optional={
        "family": st.sampled_from(["a", "b"]),
        "d": st.sampled_from([2, 3]) | subset([2, 3]),
        "gap": st.sampled_from([0.25, 0.5]) | subset([0.25, 0.5]),
        "n_tokens": subset([4, 8, 16]),
        "beta": subset([1, 2, INF]),
        "seed": st.integers(1, 4),
    },
)


@given(st.lists(OVERRIDE, max_size=4))
def test_the_last_override_that_selects_a_point_and_has_a_key_decides(overrides):
    grid = {"family": ["a", "b"], "d": [2, 3], "gap": [0.25, 0.5]}
    grid |= {"n_tokens": [4], "beta": [1, 2], "seed": 3}
    document = {"run": "x", "grid": grid, "time": {"t_end": 1, "n_times": 2}}
    document |= {"families": {"a": {"kind": "identity"}, "b": {"kind": "generic"}}}
    try:
        config = Config.model_validate(document | {"overrides": overrides})
    except ValueError as error:
        assert "changes nothing" in str(error) or "leave nothing" in str(error)  # noqa: PT017
        return
    parts = config.parts()
    assert {tuple(vars(part).values()) for part in parts} == parts_by_search(config)
    assert len(set(parts)) == len(parts)


def test_overrides_that_leave_nothing_are_refused(load):
    document = changed("grid.family", ["aligned"])
    document["overrides"] = [
        {"d": 2, "gap": [0.25]},
        {"d": 3, "gap": [0.5]},
        {"gap": 0.25, "d": [3]},
        {"gap": 0.5, "d": [2]},
    ]
    assert refusal(load, document).startswith("overrides: leave nothing")


def test_a_file_family_is_one_part_that_overrides_select_by_label_only(load):
    document = changed("grid.family", ["given"])
    document["overrides"] = [{"family": "given", "beta": [1]}]
    (part,) = load(document).parts()
    assert (part.d, part.gap, part.beta) == (None, None, (1.0,))
    document["overrides"] = [{"d": 2, "beta": [1]}]
    assert refusal(load, document).startswith("overrides[0]: changes nothing")


@pytest.mark.parametrize(
    ("sampling", "grid"), [("antipodal", {"n_tokens": [64, 65]}), ("equispaced", {"d": [2, 3]})]
)
def test_sampling_that_does_not_suit_a_part_is_refused(load, sampling, grid):
    document = copy.deepcopy(GOOD) | {"initial": {"sampling": sampling}, "overrides": []}
    document["grid"] |= grid
    assert refusal(load, document).startswith(f"initial.sampling = '{sampling}'")
    document["grid"] |= {"n_tokens": [64], "d": [2]}
    assert load(document).initial.sampling == sampling


@pytest.mark.parametrize("key", ["kappa", "tilt"])
def test_a_key_of_vmf_is_refused_where_tokens_start_uniform(load, key):
    document = copy.deepcopy(GOOD) | {"initial": {key: 1.5}}
    assert refusal(load, document).startswith(f"initial.{key} = 1.5: is for distribution vmf only")


def test_multiplicity_is_checked_against_the_dimensions_that_overrides_leave(load):
    document = changed("families.control.multiplicity", 2)
    line = refusal(load, document)
    assert line.startswith("families.control.multiplicity = 2: must be < d, here 2")
    document["overrides"] = [{"family": "control", "d": [3]}]
    assert load(document).families["control"].multiplicity == 2


def test_models_are_frozen(load):
    config = load(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        config.solver.rtol = 1e-3


def test_loading_a_config_imports_no_solver_store_or_plotting_library():
    code = (
        "import sys; from mfsweep.sweep.grid import shards; "
        "from mfsweep.sweep.config import load_config; shards(load_config('config/config.yaml'));"
        "print([n for n in ('scipy', 'numba', 'xarray', 'zarr', 'dask', 'matplotlib') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_the_written_schema_is_the_models_schema():
    written = json.loads((ROOT / "workflow/schemas/config.schema.json").read_text("utf-8"))
    assert written == config_schema()


def test_the_schema_takes_good_configs_and_refuses_what_it_can_express():
    check = jsonschema.Draft202012Validator(config_schema()).is_valid
    assert check(GOOD)
    assert check(changed("grid.n_tokens", [64, INF]))
    assert check(yaml.safe_load((ROOT / "config/config.yaml").read_text("utf-8")))
    for path in ("grid.betta", "gird", "families.aligned.bb", "overrides.0.seeds", "time.start"):
        assert not check(changed(path, 1))
    for path, value in (
        *(("grid.beta", [-3.0]), ("grid.gap", [1.5]), ("grid.d", [1]), ("grid.d", [])),
        *(("grid.n_tokens", [10**8]), ("grid.n_tokens", [2.5]), ("grid.n_tokens", [1])),
        *(("grid.beta", {"geom": [8, 512]}), ("grid.seed", 0), ("initial.kappa", None)),
        *(("overrides.0.d", [2, 2]), ("overrides.0.gap", 1), ("figures.formats", ["svg"])),
    ):
        assert not check(changed(path, value)), (path, value)
    assert not check(without("time"))


def keys_of(schema, definitions, prefix=""):
    """Yield every leaf key of a JSON schema with its default."""
    for name, entry in schema["properties"].items():
        key = f"{prefix}{name}"
        if "$ref" in entry:
            yield from keys_of(definitions[entry["$ref"].split("/")[-1]], definitions, f"{key}.")
        elif name == "families":
            (kinds,) = entry["patternProperties"].values()
            for option in kinds["oneOf"]:
                inner = definitions[option["$ref"].split("/")[-1]]
                yield from keys_of(inner, definitions, "families.{label}.")
        elif name == "overrides":
            yield from keys_of(definitions["Override"], definitions, "overrides[i].")
        elif name == "components":
            yield key, json.dumps(entry["default"])
            yield from keys_of(definitions["Component"], definitions, f"{key}[i].")
        elif name in schema.get("required", ()):
            yield key, "required"
        else:
            default = json.dumps(entry["default"]) if "default" in entry else "none"
            yield key, default.replace('"', "")


def test_the_readme_lists_every_key_of_the_schema_with_its_default():
    schema = config_schema()
    keys, listed = dict(keys_of(schema, schema["$defs"])), entries()
    assert listed.keys() == keys.keys()
    told = {key: texts["default"] for key, texts in listed.items() if "default" in texts}
    assert told == {key: keys[key] for key in told}
    assert {key for key in keys if key not in told} == {k for k in keys if "overrides" in k}


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ("families.mine.b", "families.{label}.b"),
        ("overrides[2].seed", "overrides[i].seed"),
        ("initial.components.tilt", "initial.components[i].tilt"),
        ("run", "run"),
    ],
)
def test_a_key_is_explained_by_any_label_and_number(asked, key):
    assert explain(asked).splitlines()[0] == key


def test_a_section_lists_its_keys_and_an_unknown_key_its_nearest():
    assert explain("time").split() == ["time.t_end", "time.n_times"]
    with pytest.raises(InputError, match=r"^time\.tend: not a key .* nearest is time\.t_end$"):
        explain("time.tend")


def test_the_default_config_uses_every_family_that_it_defines():
    config = load_config(ROOT / "config/config.yaml")
    assert set(config.grid.family) == set(config.families)


@pytest.mark.parametrize(
    ("initial", "key"),
    [
        ({"distribution": "mixture"}, "initial.components"),
        ({"distribution": "file"}, "initial.path"),
        ({"components": [{"kappa": 1}]}, "initial.components"),
        ({"distribution": "mixture", "components": [{}]}, "initial.components[0].kappa"),
        ({"distribution": "mixture", "components": [{"kappa": -1}]}, "initial.components[0].kappa"),
        (
            {"distribution": "mixture", "components": [{"kappa": 1}], "sampling": "qmc"},
            "initial.sampling",
        ),
    ],
)
def test_a_start_is_told_what_its_distribution_needs(load, initial, key):
    assert refusal(load, GOOD | {"initial": initial}).startswith(key)


def test_mixtures_and_files_are_starts(load):
    parts = [{"kappa": 0}, {"weight": 0.5, "kappa": 4, "tilt": 0.7}]
    mixture = load(GOOD | {"initial": {"distribution": "mixture", "components": parts}}).initial
    assert [part.weight for part in mixture.components] == [1.0, 0.5]
    given = load(GOOD | {"initial": {"distribution": "file", "path": "G0.npz"}}).initial
    assert given.path.is_absolute()


HEADS = ["layer0-head2", "layer0-head10", "layer1-head0"]


@pytest.fixture
def patterned(load, tmp_path):
    """Load GOOD with the family `given` a pattern of three files, and other keys changed."""
    (tmp_path / "heads").mkdir()
    for name in HEADS:
        np.savez(tmp_path / f"heads/{name}.npz", V=np.eye(2), B=np.eye(2))
    (tmp_path / "heads/notes.txt").write_text("no weights")

    def patterned(path="heads/*", overrides=(), label="given"):
        document = changed("grid.family", ["control", label])
        options = {"kind": "file", "path": path, "span": 2, "scale": "unit"}
        document["families"] = {**GOOD["families"], label: options}
        return load(document | {"overrides": [*overrides]})

    return patterned


def test_a_pattern_stands_for_a_family_a_file_in_the_order_of_their_numbers(patterned, tmp_path):
    config = patterned()
    labels = [f"given-{name}" for name in HEADS]
    assert config.grid.family == ("control", *labels)
    assert [label for label in config.families if label.startswith("given")] == labels
    for label, name in zip(labels, HEADS, strict=True):
        family = config.families[label]
        assert family.path == tmp_path / f"heads/{name}.npz"
        assert (family.span, family.scale) == (2, "unit")
    absolute = patterned(str(tmp_path / "heads/layer0-head?.npz"))
    assert absolute.grid.family == ("control", "given-layer0-head2")


def test_a_written_out_pattern_is_a_config_of_the_same_meaning(patterned):
    config = patterned()
    assert Config.model_validate(json.loads(config.model_dump_json(exclude_none=True))) == config


def test_an_override_of_a_pattern_holds_for_each_of_its_files(patterned):
    config = patterned(overrides=[{"family": "given", "beta": [3]}, {"d": [2], "seed": 1}])
    betas = {part.family: part.beta for part in config.parts()}
    assert betas.pop("control") == (8.0, 16.0, INF)
    assert set(betas.values()) == {(3.0,)}
    assert len(betas) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "none/*.npz"}, "families.given.path = 'none/*.npz': must match 1 to 10,000"),
        ({"path": "heads/*.txt"}, "families.given.path = 'heads/*.txt': must match"),
        ({"label": "a" * 25}, f"families.{'a' * 25}.path = 'heads/*': gives the label aaa"),
    ],
)
def test_a_pattern_that_gives_no_families_is_refused_by_its_key(patterned, options, told):
    with pytest.raises(InputError) as caught:
        patterned(**options)
    assert str(caught.value).startswith(told)
    assert len(str(caught.value)) <= 300


def test_two_files_of_one_label_are_refused(load, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "a.npz", V=np.eye(2), B=np.eye(2))
    same = {"kind": "file", "path": "*/a.npz"}
    line = refusal(load, changed("families.given", same))
    assert line.startswith("families.given.path = '*/a.npz': matches two files of one name")
    document = changed("families.given", {"kind": "file", "path": "one/*.npz"})
    document["families"]["given-a"] = {"kind": "identity"}
    assert "stands for given-a, which is another family already" in refusal(load, document)


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_fixed_step_belongs_to_the_methods_that_keep_one(load, method):
    line = refusal(load, GOOD | {"solver": {"method": method}})
    assert line.startswith("solver.step: required key is missing")
    assert load(GOOD | {"solver": {"method": method, "step": 0.1}}).solver.step == 0.1
