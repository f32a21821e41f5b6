"""Two coefficient sets compared."""

from __future__ import annotations

import msgspec
import pytest

from calib import errors
from calib.coefficients.comparison import compare

MODEL = "Qwen/Qwen3-8B"


def changed(c, model=MODEL, estimate=None, domain=None, **changes):
    """The set with one coefficient altered."""

    def one(x):
        if x.model != model:
            return x
        e = msgspec.structs.replace(x.estimate, **(estimate or {}))
        return msgspec.structs.replace(
            x, estimate=e, domain=msgspec.structs.replace(x.domain, **(domain or {})), **changes
        )

    return msgspec.structs.replace(c, coefficients=tuple(map(one, c.coefficients))).sealed()


def own(c):
    return next(x for x in c.coefficients if x.model == MODEL)


def test_a_set_does_not_differ_from_itself(peak_set):
    found = compare(peak_set, peak_set)
    assert found.largest_z == found.largest_change_pct == 0.0
    assert (found.changed, found.gained, found.lost, found.points_gained, found.points_lost) == ((), (), (), 0, 0)
    assert len(found.points) == 12
    assert "are the same" in found.describe()


def test_a_move_is_told_in_combined_standard_errors_and_in_what_it_does_to_predictions(peak_set):
    e = own(peak_set).estimate
    found = compare(peak_set, changed(peak_set, estimate={"values": (e.values[0] + 5 * e.stderr[0],)}))
    assert found.largest_z == pytest.approx(5 / 2**0.5)
    (moved,) = [m for m in found.moved if m.z]
    assert (moved.key[3], moved.parameter) == (MODEL, "s")
    factor = {p.pp: p for p in found.points if p.model == MODEL}
    for pp, steps in ((2, 1), (4, 2), (8, 3)):
        before, after = 1 - e.values[0] * steps, 1 - (e.values[0] + 5 * e.stderr[0]) * steps
        assert factor[pp].change_pct == pytest.approx(100 * (after / before - 1))
        assert factor[pp].z < 0
    assert found.largest_change_pct == pytest.approx(abs(factor[8].change_pct))


def test_an_unknown_error_makes_no_z(peak_set):
    unknown = {"stderr": None, "covariance": None, "interval95": None, "t_quantile": None, "scatter": None}
    e = own(peak_set).estimate
    found = compare(peak_set, changed(peak_set, estimate=unknown | {"values": (e.values[0] + 0.01,)}))
    assert next(m for m in found.moved if m.key[3] == MODEL).z is None
    assert all(p.z is None for p in found.points if p.model == MODEL)
    assert found.describe()


def test_verdicts_domains_and_limits_that_changed_are_listed(peak_set):
    found = compare(peak_set, changed(peak_set, verdict="REFUSED", positivity_limit_pp=None, domain={"tp": (1, 2)}))
    said = {c.what: (c.old, c.new) for c in found.changed}
    assert said["verdict"] == ("FIT", "REFUSED")
    assert said["domain tp"] == ("1, 2, 4", "1, 2")
    assert said["positive for pp below"][1] == "any"
    assert len(found.verdicts) == 1
    assert (found.points_gained, found.points_lost) == (0, 3)  # refused: no longer answered for


def test_coverage_gained_and_lost(peak_set):
    fewer = msgspec.structs.replace(
        peak_set, coefficients=tuple(c for c in peak_set.coefficients if c.model != MODEL)
    ).sealed()
    found = compare(peak_set, fewer)
    assert [k[3] for k in found.lost] == [MODEL]
    assert [k[3] for k in compare(fewer, peak_set).gained] == [MODEL]
    assert found.points_lost == 3


def test_other_forms_are_compared_by_their_predictions_alone(peak_set, matched_set):
    found = compare(peak_set, matched_set)
    assert found.moved == ()
    assert found.points
    assert "another form" in found.describe()
    assert {c.what for c in found.changed} >= {"form", "matching"}


def test_sets_of_two_references_cannot_be_compared(peak_set):
    model = msgspec.structs.replace(peak_set, reference="model", fill_rule="occupancy").sealed()
    with pytest.raises(errors.ReferenceMismatchError, match=r"'reference' = 'model'.*old set multiplies"):
        compare(peak_set, model)
