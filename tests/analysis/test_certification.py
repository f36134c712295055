import math

import pytest

from mfsweep.analysis.certification import certified
from mfsweep.analysis.switching import SwitchTime

NAN, END = math.nan, 20.0
CENSORED = SwitchTime(END, END, math.inf, "censored")
ABSENT = SwitchTime(NAN, NAN, NAN, "absent")


def observed(value):
    return SwitchTime(value, value - 0.02, value + 0.03, "observed")


def test_an_interval_holds_the_difference_of_the_two_runs():
    found = certified(observed(10.0), observed(9.95))
    assert found.status == "observed"
    assert (found.value, found.low, found.high) == (10.0, 9.95, pytest.approx(10.05))


def test_an_interval_that_holds_it_stays():
    assert certified(observed(10.0), observed(10.01)) == observed(10.0)


@pytest.mark.parametrize(("coarse", "status"), [(9.91, "observed"), (10.11, "under_resolved")])
def test_a_difference_beyond_one_per_cent_is_under_resolved(coarse, status):
    assert certified(observed(10.0), observed(coarse)).status == status


@pytest.mark.parametrize("other", [CENSORED, ABSENT])
def test_an_event_of_one_run_only_is_under_resolved_and_keeps_its_time(other):
    for pair in ((observed(10.0), other), (other, observed(10.0))):
        found = certified(*pair)
        assert (found.value, found.status) == (10.0, "under_resolved")


def test_without_an_event_the_weaker_statement_holds():
    assert certified(ABSENT, CENSORED) == certified(CENSORED, ABSENT) == CENSORED
    assert certified(ABSENT, ABSENT) is ABSENT
