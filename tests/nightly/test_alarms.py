"""Each alarm on each side of its limit, acknowledgements, and change points."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from calib.coefficients.file import CoefficientSet
from calib.nightly.alarms.changepoints import change_points
from calib.nightly.alarms.gates import lost_coverage
from calib.nightly.alarms.monitor import Limits, Monitor, family_limit, mape_rise
from calib.nightly.alarms.series import Level, Measured, follow

LIMIT = 3.5


def run(values, acks=None, error=0.004):
    history = [Measured(i + 1, v, error) for i, v in enumerate(values)]
    return follow(Level(0.2, error, 0, "released"), history, limits=Limits(), limit=LIMIT, acks=acks)


@pytest.mark.parametrize(("z", "alarm"), [(3.49, False), (3.51, True), (-3.51, True)])
def test_a_move_is_told_beyond_the_limit(z, alarm):
    move = run([0.2 + z * 0.004 * np.sqrt(2)])
    assert (move.opened == 1) is alarm
    assert move.z == pytest.approx(z)


def test_two_nights_together_find_what_one_does_not():
    one = 0.2 + 3.2 * 0.004 * np.sqrt(2)
    assert run([one]).opened is None
    assert run([one, one]).opened == 2


def test_the_baseline_is_held_while_the_coefficient_is_off_and_frozen_later():
    monitor = Monitor(np.array(0.2), np.array(0.004), limit=LIMIT, baseline_nights=3)
    for _ in range(30):
        monitor.step(np.array(0.3), np.array(0.004))
    assert float(monitor.baseline[0]) == pytest.approx(0.2)
    for _ in range(30):
        monitor.step(np.array(0.2), np.array(0.004))
    assert float(monitor.baseline[1]) == pytest.approx(0.004 / 2)  # the release and three nights


def test_a_slow_drift_is_not_followed():
    values = [0.2 + 0.0005 * i for i in range(100)]
    assert run(values).opened is not None


def test_an_acknowledged_level_is_silent_until_the_next_change():
    off = [0.2, 0.2, 0.24, 0.24]
    assert run(off).opened == 3
    acked = run([*off, 0.24, 0.24], acks={4: "id"})
    assert (acked.opened, acked.acknowledged) == (None, "id")
    assert run([*off, 0.24, 0.28], acks={4: "id"}).opened == 6
    assert run([*off, 0.24, 0.2], acks={4: "id"}).opened == 6


def test_stated_errors_that_are_too_small_are_scaled():
    noisy = [Measured(i + 1, 0.2 + 0.02 * (-1) ** i, 0.004, chi_square=50.0, dof=2) for i in range(20)]
    assert follow(Level(0.2, 0.004, 0, "r"), noisy, limits=Limits(), limit=LIMIT).opened is None
    calm = [Measured(m.night, m.value, m.stderr, 2.0, 2) for m in noisy]
    assert follow(Level(0.2, 0.004, 0, "r"), calm, limits=Limits(), limit=LIMIT).opened is not None


def test_the_limit_grows_with_the_family_and_never_falls_below_its_floor():
    assert family_limit(Limits(family_nights=1), 1) == 3.5
    assert 3.7 < family_limit(Limits(), 4) < family_limit(Limits(), 400) < 5
    assert family_limit(Limits(standard_errors=6.0), 4) == 6.0


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (5.0, 7.0, True),
        (5.0, 6.99, False),
        (30.0, 32.5, False),
        (30.0, 33.0, True),
        (5.0, 3.0, False),
        (0.0, 2.0, True),
    ],
)
def test_the_error_must_rise_by_points_and_relatively(before, now, told):
    zero = np.array(0.0)
    _, alarm = mape_rise(
        before=np.array(before), now=np.array(now), before_stderr=zero, now_stderr=zero, limits=Limits()
    )
    assert bool(alarm) is told


def test_a_rise_within_its_own_noise_is_not_told():
    _, alarm = mape_rise(
        before=np.array(2.0), now=np.array(5.0), before_stderr=np.array(0.1), now_stderr=np.array(1.0), limits=Limits()
    )
    assert not alarm


def test_change_points_need_ten_nights():
    values = np.r_[np.full(6, 0.20), np.full(6, 0.24)]
    error = np.full(12, 0.003)
    assert change_points(values, error) == [6]
    assert change_points(values[3:], error[3:]) == []
    noise = 0.2 + 0.003 * np.random.default_rng(3).standard_normal(200)
    assert change_points(noise, np.full(200, 0.003)) == []


@pytest.fixture(scope="module")
def shipped(calibrated):

    return calibrated("h200-vllm-pp").coefficients


def without(s: CoefficientSet, model: str) -> CoefficientSet:
    return msgspec.structs.replace(
        s, coefficients=tuple(c for c in s.coefficients if c.model != model),
        balance_factors=tuple(b for b in s.balance_factors if b.model != model),
    ).sealed()  # fmt: skip


def test_coverage_that_is_lost_is_told_even_where_as_much_is_gained(shipped):
    first, *_, last = [c.model for c in shipped.coefficients if c.model]
    reference, tonight = without(shipped, last), without(shipped, first)
    lost = lost_coverage(reference, [tonight])
    assert [s[3] for s in lost.series] == [first]
    assert lost.points == ()
    fitted = [b for b in shipped.balance_factors if b.fitted]
    fewer = msgspec.structs.replace(
        shipped, balance_factors=tuple(b for b in shipped.balance_factors if b != fitted[0])
    ).sealed()
    assert len(lost_coverage(shipped, [fewer]).points) == 1
    assert lost_coverage(shipped, [fewer, shipped]).points == ()
