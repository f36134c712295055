import numpy as np
import oracles
import pytest
from scipy.integrate import RK23, RK45

from mfsweep._errors import IntegrationError
from mfsweep.dynamics import integrators
from mfsweep.dynamics.integrators import METHODS, StepRecord, integrate

V = np.array([[1.0, 0.3, 0.0], [-0.2, 0.5, 0.1], [0.0, 0.4, -0.3]])
X0 = np.array([[0.6, 0.0, 0.8]])


def drift(x):
    push = x @ V.T
    return push - np.sum(x * push, axis=1, keepdims=True) * x


def fixed_steps(pair, h, times):
    """Run with a tolerance so loose that every step is max_step."""
    record = StepRecord()
    run = integrate(drift, X0, times, pair, rtol=1e6, atol=0.0, max_step=h, record=record)
    return np.concatenate(list(run)), record


@pytest.mark.parametrize(("name", "scipys"), [("dopri5", RK45), ("bs32", RK23)])
def test_tableau_agrees_with_scipy(name, scipys):
    pair = METHODS[name]
    for row, expected in zip(pair.a, [*scipys.A[1:], scipys.B], strict=True):
        np.testing.assert_allclose(row, expected[: len(row)], rtol=1e-15)
    np.testing.assert_allclose(np.abs(pair.error), np.abs(scipys.E), rtol=1e-14)
    np.testing.assert_allclose(pair.dense, scipys.P, rtol=1e-14)


@pytest.mark.parametrize("name", METHODS)
def test_convergence_has_the_stated_order(name):
    pair, end = METHODS[name], 4.0
    steps = [0.25, 0.125, 0.0625, 0.03125]
    errors = []
    for h in steps:
        states, record = fixed_steps(pair, h, np.array([end]))
        assert record.steps in (round(end / h), round(end / h) + 1)
        errors.append(np.linalg.norm(states[-1] - oracles.one_token(X0[0], V, end)))
    order = np.polyfit(np.log(steps[1:]), np.log(errors[1:]), 1)[0]
    assert abs(order - pair.order) < 0.2


@pytest.mark.parametrize(("name", "order"), [("dopri5", 4), ("bs32", 3)])
def test_dense_output_has_the_order_of_its_extension(name, order):
    steps = [0.5, 0.25, 0.125, 0.0625]
    errors = []
    for h in steps:
        times = 0.4 * h + h * np.arange(round(2 / h))
        states, _ = fixed_steps(METHODS[name], h, times)
        exact = [oracles.one_token(X0[0], V, t) for t in times]
        errors.append(np.linalg.norm(states - exact, axis=1).max())
    measured = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert order - 0.2 < measured < order + 1.2  # one order more in the local error


@pytest.mark.parametrize("name", METHODS)
def test_error_follows_the_tolerance(name):
    times = np.linspace(0.5, 10.0, 20)
    exact = [oracles.one_token(X0[0], V, t) for t in times]
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        run = integrate(drift, X0, times, METHODS[name], rtol=rtol, atol=0.0, record=StepRecord())
        errors.append(np.linalg.norm(np.concatenate(list(run)) - exact, axis=1).max())
        assert errors[-1] < 20 * rtol
    assert errors[-1] < 1e-4 * errors[0]


@pytest.mark.parametrize("name", METHODS)
def test_exactly_the_steps_within_the_tolerance_are_kept(name, monkeypatch):
    errors, rtol = [], 1e-7
    measure = integrators._largest_error

    def noted(*arguments):
        errors.append(measure(*arguments))
        return errors[-1]

    def abrupt(x):
        return drift(x) * (1 + 50 * np.exp(-(((x[:, :1] - 0.8) / 0.01) ** 2)))

    monkeypatch.setattr(integrators, "_largest_error", noted)
    record = StepRecord()
    times = np.array([5.0])
    list(integrate(abrupt, X0, times, METHODS[name], rtol=rtol, atol=0.0, record=record))
    assert record.rejected > 0
    assert sum(error <= rtol for error in errors) == record.steps
    assert sum(error > rtol for error in errors) == record.rejected


def test_tokens_stay_on_the_sphere():
    times = np.linspace(0.0, 50.0, 101)
    run = integrate(drift, X0, times, METHODS["dopri5"], rtol=1e-3, atol=0.0, record=StepRecord())
    lengths = np.linalg.norm(np.concatenate(list(run)), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=3e-16)


def test_a_step_that_underflows_is_refused():
    def rough(x):
        return drift(x) * 1e6 * np.sign(np.sin(1e12 * x[:, :1]))

    with pytest.raises(IntegrationError, match="loosen rtol"):
        list(
            integrate(
                rough,
                X0,
                np.array([1.0]),
                METHODS["dopri5"],
                rtol=1e-12,
                atol=0.0,
                record=StepRecord(),
            )
        )
