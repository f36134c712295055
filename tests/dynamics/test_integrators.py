import numpy as np
import oracles
import pytest
from scipy.integrate import RK23, RK45

from mfsweep._errors import IntegrationError
from mfsweep.dynamics import integrators
from mfsweep.dynamics.integrators import (
    DOPRI5,
    METHODS,
    State,
    StepControl,
    StepRecord,
    integrate,
)

V = np.array([[1.0, 0.3, 0.0], [-0.2, 0.5, 0.1], [0.0, 0.4, -0.3]])
X0 = np.array([[0.6, 0.0, 0.8]])


def drift(x):
    push = x @ V.T
    return push - np.sum(x * push, axis=1, keepdims=True) * x


def run(method, times, *, rtol=1e-6, longest=np.inf, step=None, f=drift):
    """Integrate X0; return the states and the record."""
    record = StepRecord()
    control = StepControl(rtol, 0.0, longest, step)
    states = integrate(f, X0, times, METHODS[method], control=control, record=record)
    return np.concatenate(list(states)), record


def fixed_steps(name, h, times):
    """Run with steps of h: given, or the longest under a tolerance that allows all."""
    if METHODS[name].error:
        return run(name, times, rtol=1e6, longest=h)
    return run(name, times, step=h)


@pytest.mark.parametrize(("name", "scipys"), [("dopri5", RK45), ("bs32", RK23)])
def test_tableau_agrees_with_scipy(name, scipys):
    method = METHODS[name]
    for row, expected in zip(method.a, [*scipys.A[1:], scipys.B], strict=True):
        np.testing.assert_allclose(row, expected[: len(row)], rtol=1e-15)
    np.testing.assert_allclose(np.abs(method.error), np.abs(scipys.E), rtol=1e-14)
    np.testing.assert_allclose(method.dense, scipys.P, rtol=1e-14)


def test_euler_and_rk4_are_the_steps_of_the_textbooks():
    h, x = 0.1, X0
    states, record = run("euler", h * np.arange(1, 4), step=h)
    for state in states:
        x = x + h * drift(x)
        x /= np.linalg.norm(x)
        np.testing.assert_allclose(state, x[0], rtol=1e-13)
    assert (record.steps, record.rejected, record.drift_evaluations) == (3, 0, 4)

    def on_sphere(x):
        return x / np.linalg.norm(x)

    (state,), _ = run("rk4", np.array([h]), step=h)
    k1 = drift(X0)
    k2 = drift(on_sphere(X0 + h / 2 * k1))
    k3 = drift(on_sphere(X0 + h / 2 * k2))
    k4 = drift(on_sphere(X0 + h * k3))
    expected = on_sphere(X0 + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    np.testing.assert_allclose(state, expected[0], rtol=1e-13)


def test_a_thousand_fixed_steps_end_where_they_should():
    _, record = run("euler", np.array([100.0]), step=0.1)
    assert record.steps in (1000, 1001)


@pytest.mark.parametrize("name", METHODS)
def test_convergence_has_the_stated_order(name):
    end = 4.0
    steps = [0.25, 0.125, 0.0625, 0.03125]
    errors = []
    for h in steps:
        states, record = fixed_steps(name, h, np.array([end]))
        assert record.steps in (round(end / h), round(end / h) + 1)
        errors.append(np.linalg.norm(states[-1] - oracles.one_token(X0[0], V, end)))
    order = np.polyfit(np.log(steps[1:]), np.log(errors[1:]), 1)[0]
    assert abs(order - METHODS[name].order) < 0.2


@pytest.mark.parametrize(("name", "order"), [("dopri5", 4), ("bs32", 3), ("euler", 1), ("rk4", 3)])
def test_dense_output_has_the_order_of_its_extension(name, order):
    steps = [0.5, 0.25, 0.125, 0.0625]
    errors = []
    for h in steps:
        times = 0.4 * h + h * np.arange(round(2 / h))
        states, _ = fixed_steps(name, h, times)
        exact = [oracles.one_token(X0[0], V, t) for t in times]
        errors.append(np.linalg.norm(states - exact, axis=1).max())
    measured = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert order - 0.2 < measured < order + 1.2  # one order more in the local error


@pytest.mark.parametrize("name", ["dopri5", "bs32"])
def test_error_follows_the_tolerance(name):
    times = np.linspace(0.5, 10.0, 20)
    exact = [oracles.one_token(X0[0], V, t) for t in times]
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        errors.append(np.linalg.norm(run(name, times, rtol=rtol)[0] - exact, axis=1).max())
        assert errors[-1] < 20 * rtol
    assert errors[-1] < 1e-4 * errors[0]


@pytest.mark.parametrize("name", ["dopri5", "bs32"])
def test_exactly_the_steps_within_the_tolerance_are_kept(name, monkeypatch):
    errors, rtol = [], 1e-7
    measure = integrators._largest_error

    def noted(*arguments):
        errors.append(measure(*arguments))
        return errors[-1]

    def abrupt(x):
        return drift(x) * (1 + 50 * np.exp(-(((x[:, :1] - 0.8) / 0.01) ** 2)))

    monkeypatch.setattr(integrators, "_largest_error", noted)
    _, record = run(name, np.array([5.0]), rtol=rtol, f=abrupt)
    assert record.rejected > 0
    assert sum(error <= rtol for error in errors) == record.steps
    assert sum(error > rtol for error in errors) == record.rejected


@pytest.mark.parametrize("name", METHODS)
def test_tokens_stay_on_the_sphere(name):
    step = None if METHODS[name].error else 0.1
    states, _ = run(name, np.linspace(0.0, 50.0, 101), rtol=1e-3, step=step)
    np.testing.assert_allclose(np.linalg.norm(states, axis=1), 1.0, atol=3e-16)


def test_a_step_that_underflows_is_refused():
    def rough(x):
        return drift(x) * 1e6 * np.sign(np.sin(1e12 * x[:, :1]))

    with pytest.raises(IntegrationError, match="loosen rtol"):
        run("dopri5", np.array([1.0]), rtol=1e-12, f=rough)


def test_a_settled_run_keeps_its_last_state():
    def settle(t, state):
        return state._replace(at_rest=t > 1.0)

    record, times = StepRecord(), np.linspace(0.0, 9.0, 10)
    control = StepControl(1e-6, 0.0, 0.5)
    states = np.concatenate(
        list(integrate(drift, X0, times, DOPRI5, control=control, record=record, settle=settle))
    )
    assert record.steps <= 8
    assert (states[3:] == states[-1]).all()
    assert (states[0] != states[-1]).any()


def test_a_state_may_be_replaced_between_steps():
    def settle(t, state):
        return State(state.x[:1], state.velocity[:1]) if t > 1.0 else state

    twice = np.concatenate([X0, X0])
    control, times = StepControl(1e-8, 0.0, 0.5), np.array([0.5, 4.0])
    states = list(
        integrate(drift, twice, times, DOPRI5, control=control, record=StepRecord(), settle=settle)
    )
    assert [len(x) for x in states] == [2, 1]
    np.testing.assert_allclose(states[1][0], oracles.one_token(X0[0], V, 4.0), atol=1e-6)
