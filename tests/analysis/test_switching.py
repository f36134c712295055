"""Switch times against curves whose events are known in closed form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from mfsweep._errors import InputError
from mfsweep._types import ESTIMATORS
from mfsweep.analysis.switching import DISTANCE_FLOOR, ESS_THRESHOLD, SwitchTime, switch_times

# W2^2 = A e^{-c t} + B e^{2 l t} is least at log(c A / (2 l B)) / (c + 2 l).
A, B, C, GROWTH = 4 / math.pi, 1e-12, 0.25, 0.5
TURN = math.log(C * A / (2 * GROWTH * B)) / (C + 2 * GROWTH)


def dip(t):
    return np.sqrt(A * np.exp(-C * t) + B * np.exp(2 * GROWTH * t))


def curves(t, w2=None, g=0.0, ess=100.0, dominant=None):
    """Curves with the given W2 and g = distance_dominant - distance_terminal."""
    t = np.asarray(t, dtype=float)
    dominant = 0.5 + np.maximum(g, 0.0) if dominant is None else dominant
    given_curves = {
        "w2_metastable": dip(t) if w2 is None else w2,
        "distance_dominant": dominant,
        "distance_terminal": dominant - g,
        "ess_median": ess,
    }
    return {name: np.broadcast_to(curve, t.shape) for name, curve in given_curves.items()}


def events(t, separation=1.0, ess_threshold=ESS_THRESHOLD, **given_curves):
    return switch_times(
        t, curves(t, **given_curves), separation=separation, ess_threshold=ess_threshold
    )


def statuses(found):
    return {name: event.status for name, event in found.items()}


def test_entry_of_an_exponential_decay_is_exact_between_the_saved_times():
    found = events(np.linspace(0, 20, 11), w2=np.exp(-0.37 * np.linspace(0, 20, 11)))["entry"]
    assert found.status == "observed"
    assert found.value == pytest.approx(math.log(10) / 0.37, rel=1e-13)
    assert (found.low, found.high) == (6.0, 8.0)


def test_entry_of_the_zero_temperature_flow_in_three_dimensions_matches_its_closed_form():
    t = np.linspace(0, 30, 121)
    q = np.exp(-0.5 * t)
    found = events(t, w2=np.sqrt(2 * q / (1 + q)))["entry"]
    assert found.value == pytest.approx(math.log(199) / 0.5, abs=1e-4)


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.7])
def test_turnaround_meets_the_closed_form_minimum_with_an_error_of_second_order(offset):
    errors = []
    for h in (0.5, 0.25, 0.125):
        t = h * np.arange(int(30 / h)) + offset * h
        errors.append(max(abs(events(t)["turnaround"].value - TURN), 1e-12))
    assert errors[0] < 0.035
    assert errors[1] < 0.01
    assert errors[2] < 0.0025


def test_turnaround_bounds_are_where_w2_is_within_one_percent_of_its_minimum():
    t = np.linspace(0, 30, 481)
    level = 1.01 * dip(TURN)
    low = brentq(lambda s: dip(s) - level, 0, TURN)
    high = brentq(lambda s: dip(s) - level, TURN, 30)
    found = events(t)["turnaround"]
    assert found.low == pytest.approx(low, abs=0.01)
    assert found.high == pytest.approx(high, abs=0.01)


def test_turnaround_bounds_span_a_flat_floor():
    t = np.linspace(0, 12, 25)
    w2 = np.exp(np.maximum(np.maximum(2 - t, t - 8), 0.0))
    w2[10] = 0.999
    found = events(t, w2=w2)["turnaround"]
    level = math.log(1.01 * 0.999)
    assert found.value == pytest.approx(t[10], abs=1e-9)
    assert (found.low, found.high) == pytest.approx((2 - level, 8 + level))


@pytest.mark.parametrize("h", [0.25, 0.125])
def test_exit_is_where_w2_doubles_after_its_minimum(h):
    doubled = brentq(lambda s: dip(s) - 2 * dip(TURN), TURN, 30)
    found = events(np.arange(0, 30, h))["exit"]
    assert found.status == "observed"
    assert found.value == pytest.approx(doubled, abs=0.03 * h)
    assert found.low <= doubled <= found.high == found.low + h


def test_exit_next_to_the_minimum_follows_the_parabola_of_the_turnaround():
    t = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    found = events(t, w2=np.exp(1.5 * (t - 2.2) ** 2))
    assert found["turnaround"].value == pytest.approx(2.2)
    level = 1.5 * 0.2**2 + math.log(2)
    assert found["exit"].value == pytest.approx(2.2 + math.sqrt(level / 1.5))


def test_crossover_of_a_straight_line_is_exact():
    t = np.linspace(0, 10, 14)
    found = events(t, g=0.2 * (t - 6.1))["crossover"]
    assert found.value == pytest.approx(6.1, rel=1e-13)
    assert found.status == "observed"
    assert found.low < 6.1 < found.high


def test_crossover_is_the_last_zero_before_the_upper_threshold_and_needs_arming():
    t = np.arange(9.0)
    g = np.array([0.3, -0.05, 0.2, -0.2, 0.05, -0.05, 0.05, 0.3, -0.4])
    assert events(t, g=g)["crossover"].value == pytest.approx(5.5)


def test_crossover_thresholds_scale_with_the_separation():
    t = np.arange(4.0)
    g = np.array([-0.05, -0.01, 0.01, 0.05])
    assert events(t, g=g)["crossover"].status == "absent"
    assert events(t, g=g, separation=0.5)["crossover"].value == pytest.approx(1.5)


def naive_crossover(t, g, separation):
    """Walk the samples once: arm, remember the last zero, stop at the upper threshold."""
    armed, last = False, None
    for i in range(len(t)):
        armed = armed or g[i] <= -0.1 * separation
        if armed and i and g[i - 1] <= 0 < g[i]:
            last = t[i - 1] + (t[i] - t[i - 1]) * g[i - 1] / (g[i - 1] - g[i])
        if armed and g[i] >= 0.1 * separation:
            return "observed", last
    return ("censored", t[-1]) if armed else ("absent", None)


@given(st.lists(st.integers(-30, 30), min_size=1, max_size=40))
def test_crossover_agrees_with_a_walk_over_the_samples(steps):
    g, t = np.array(steps) / 97.0, np.linspace(1, 2, len(steps))
    found = events(t, g=g)["crossover"]
    status, value = naive_crossover(t, g, 1.0)
    assert found.status == status
    assert status == "absent" or found.value == pytest.approx(value, rel=1e-12)


LINE = np.linspace(0, 10, 41)
TABLE = {
    "still falling": (np.exp(-0.1 * LINE), ("censored", "censored", "censored")),
    "fallen to a plateau": (0.5 + np.exp(-5 * LINE), ("censored", "censored", "absent")),
    "entered": (np.exp(-LINE), ("observed", "censored", "censored")),
    "turned above a tenth": (1 + (LINE - 3) ** 2 / 50, ("absent", "observed", "censored")),
    "left above a tenth": (1 + (LINE - 3) ** 2 / 20, ("absent", "observed", "observed")),
    "settled after the turn": (
        np.interp(LINE, [0, 3, 5, 10], [2, 1, 1.5, 1.5]),
        ("absent", "observed", "absent"),
    ),
    "rising from the start": (np.exp(LINE), ("absent", "absent", "absent")),
    "flat": (np.ones(41), ("censored", "censored", "absent")),
    "zero": (np.zeros(41), ("absent", "absent", "absent")),
    "risen by less than 5 %": (
        1 + (LINE - 7) ** 2 / 200,
        ("censored", "censored", "censored"),
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_w2_events_have_the_status_of_their_curve(case):
    w2, expected = TABLE[case]
    assert tuple(events(LINE, w2=w2)[name].status for name in ESTIMATORS[:3]) == expected


def test_a_single_time_is_censored_and_never_armed():
    found = events([2.5], w2=[0.4])
    assert statuses(found) == {
        "entry": "censored",
        "turnaround": "censored",
        "exit": "censored",
        "crossover": "absent",
    }
    assert found["entry"] == SwitchTime(2.5, 2.5, math.inf, "censored")


def test_a_censored_event_carries_the_last_time_as_its_lower_bound():
    found = events(LINE, w2=np.exp(-0.1 * LINE), g=-0.5)
    assert set(found.values()) == {SwitchTime(10.0, 10.0, math.inf, "censored")}


def test_roundoff_that_grows_after_a_complete_collapse_is_no_event():
    t = np.linspace(0, 60, 241)
    noise = np.hypot(np.exp(-t), 1e-16 * np.exp(t))
    assert noise.min() < DISTANCE_FLOOR
    found = events(t, w2=noise, g=noise - 0.5, dominant=noise)
    assert statuses(found) == {
        "entry": "observed",
        "turnaround": "absent",
        "exit": "absent",
        "crossover": "absent",
    }


def test_a_start_on_the_target_has_no_entry():
    w2 = 1e-9 * (1 + np.sin(LINE) ** 2)
    assert events(LINE, w2=w2[::-1])["entry"].status == "absent"
    assert events(LINE, w2=np.r_[1e-9, np.full(40, 1e-12)])["entry"].status == "absent"


def test_coinciding_targets_allow_an_entry_only():
    t = np.linspace(0, 30, 121)
    found = events(t, g=0.2 * (t - 6), separation=9e-7, w2=0.1 * dip(t))
    assert statuses(found) == {
        "entry": "observed",
        "turnaround": "absent",
        "exit": "absent",
        "crossover": "absent",
    }


def test_an_event_is_under_resolved_if_ess_was_low_up_to_its_bracketing_sample():
    t = np.arange(0, 30, 0.25)
    clean = events(t, g=0.2 * (t - 6.1))
    for name in ESTIMATORS:
        bracket = int(np.searchsorted(t, clean[name].value))
        for where, status in (
            (0, "under_resolved"),
            (bracket, "under_resolved"),
            (bracket + 1, "observed"),
        ):
            ess = np.full(t.size, ESS_THRESHOLD)
            ess[where] = ESS_THRESHOLD - 0.1
            found = events(t, g=0.2 * (t - 6.1), ess=ess)[name]
            assert found == SwitchTime(clean[name].value, clean[name].low, clean[name].high, status)


def test_a_low_ess_leaves_censored_events_censored():
    found = events(LINE, w2=np.exp(-0.1 * LINE), g=-0.5, ess=1.0)
    assert set(statuses(found).values()) == {"censored"}


def test_a_threshold_of_zero_switches_the_flag_off_without_reading_ess():
    t = np.arange(0, 30, 0.25)
    given_curves = curves(t, g=0.2 * (t - 6.1))
    del given_curves["ess_median"]
    found = switch_times(t, given_curves, separation=1.0, ess_threshold=0)
    assert found == events(t, g=0.2 * (t - 6.1))


def test_an_infinite_ess_is_resolved_and_an_unknown_one_is_missing():
    t = np.arange(0, 30, 0.25)
    assert events(t, ess=math.inf) == events(t)
    assert set(statuses(events(t, ess=math.nan)).values()) == {"missing"}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("separation", [1.0, 0.0])
def test_a_curve_that_is_not_finite_is_missing_for_the_estimators_that_read_it(bad, separation):
    t = np.arange(0, 30, 0.25)
    for name in ("w2_metastable", "distance_dominant", "distance_terminal"):
        broken = {key: np.array(curve) for key, curve in curves(t, g=0.2 * (t - 6.1)).items()}
        broken[name][-1] = bad
        found = statuses(switch_times(t, broken, separation=separation))
        hit = set(ESTIMATORS[:3]) if name == "w2_metastable" else {"crossover"}
        assert {key for key in found if found[key] == "missing"} == hit


REFUSED = {
    "times has shape (2, 2)": ({"times": [[0, 1], [2, 3]]}, {}),
    "times has shape (0,)": ({"times": []}, {}),
    "times[2] = 1.0: times must increase": ({"times": [0.0, 1.0, 1.0]}, {}),
    "must be finite; drop": ({"times": [0.0, 1.0, math.inf]}, {}),
    "separation = -1.0: must be finite and >= 0": ({"separation": -1.0}, {}),
    "separation = nan": ({"separation": math.nan}, {}),
    "ess_threshold = -2: must be": ({"ess_threshold": -2}, {}),
    "curves['ess_median'] has shape (2,): needs (3,)": ({}, {"ess_median": [30.0, 30.0]}),
    "curves['w2_metastable'] falls to -0.1: must be >= 0": ({}, {"w2_metastable": [1, -0.1, 1]}),
    "curves['distance_dominant'] is absent, given: distance": ({}, {"distance_dominant": None}),
}


@pytest.mark.parametrize("line", REFUSED)
def test_bad_input_is_refused_in_one_line_that_names_it(line):
    arguments, replaced = REFUSED[line]
    given_curves = {**curves([0.0, 1.0, 2.0]), **replaced}
    given_curves = {key: curve for key, curve in given_curves.items() if curve is not None}
    arguments = {"times": [0.0, 1.0, 2.0], "separation": 1.0, **arguments}
    with pytest.raises(InputError) as refusal:
        switch_times(arguments.pop("times"), given_curves, **arguments)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


SAMPLES = st.lists(
    st.tuples(
        st.floats(0.01, 10),
        st.one_of(st.just(0.0), st.floats(1e-12, 1e3)),
        st.floats(0, 2),
        st.floats(0, 2),
        st.floats(1, 60),
    ),
    min_size=1,
    max_size=30,
)


@given(SAMPLES, st.sampled_from([0.0, 1e-7, 0.01, 1.0]))
def test_any_curves_give_four_events_whose_numbers_fit_their_status(samples, separation):
    steps, w2, dominant, terminal, ess = np.array(samples).T
    t = np.cumsum(steps)
    given_curves = {
        "w2_metastable": w2,
        "distance_dominant": dominant,
        "distance_terminal": terminal,
        "ess_median": ess,
    }
    found = switch_times(t, given_curves, separation=separation)
    assert tuple(found) == ESTIMATORS
    for event in found.values():
        if event.status == "absent":
            assert np.isnan([event.value, event.low, event.high]).all()
        elif event.status == "censored":
            assert event == SwitchTime(t[-1], t[-1], math.inf, "censored")
        else:
            assert t[0] <= event.low <= event.value <= event.high <= t[-1]
    times = [found[name].value for name in ("turnaround", "exit")]
    assert not times[1] < times[0]


@given(st.floats(0.1, 10), st.floats(-50, 50), st.floats(0.1, 10))
def test_events_move_with_the_clock_and_ignore_the_unit_of_w2(stretch, shift, unit):
    t = np.linspace(0, 30, 121)
    clean = events(t, g=0.2 * (t - 6.1))
    moved = events(shift + stretch * t, w2=unit * dip(t), g=0.2 * (t - 6.1))
    for name in ESTIMATORS:
        assert moved[name].status == clean[name].status
        assert moved[name].value == pytest.approx(shift + stretch * clean[name].value, abs=1e-8)
