"""Engine replay runs one stage: any other pp is rejected before KV capacity is estimated."""

from __future__ import annotations

import pytest

from calib.errors import ReplayPipelineError, UsageError
from calib.integrations.replay import ROLES, RoleConfig, materialize_role, preflight


class Recorder:
    """A capacity estimator that remembers whether it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, config):
        self.asked.append(config.role)
        return 1000


def config(role, **sources) -> RoleConfig:
    return RoleConfig(role, sources.get("parallelism", {}), sources.get("arguments", {}), sources.get("timing", {}))


def deployment(role, pp):
    name = {"aggregated": "pp", "prefill": "prefill_pp", "decode": "decode_pp"}[role]
    return {"parallelism": {"tp": 4, name: pp}}


SOURCES = {
    "deployment": deployment,
    "flat": lambda _, pp: {"arguments": {"aic_pp_size": pp}},
    "nested": lambda _, pp: {"arguments": {"rank": {"aic_pp_size": pp}}},
    "timing": lambda _, pp: {"timing": {"pp": pp}},
    "alias": lambda _, pp: {"timing": {"pp_size": pp}},
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_of_pp_is_checked_for_every_role_before_capacity(role, source):
    estimator = Recorder()
    with pytest.raises(ReplayPipelineError, match=rf"= 2: asks for pipeline parallelism in the {role} role"):
        materialize_role(config(role, **SOURCES[source](role, 2)), estimator)
    assert estimator.asked == []
    made = materialize_role(config(role, **SOURCES[source](role, 1)), estimator)
    assert (made.kv_tokens, estimator.asked) == (1000, [role])


@pytest.mark.parametrize("role", ROLES)
def test_a_failing_estimator_does_not_hide_the_pp_error(role):
    def failing(_):
        raise MemoryError("no capacity")

    with pytest.raises(ReplayPipelineError):
        materialize_role(config(role, **deployment(role, 8)), failing)


@pytest.mark.parametrize("role", ROLES)
def test_the_shared_degree_counts_for_every_role(role):
    with pytest.raises(ReplayPipelineError, match=r"parallelism\.pp"):
        materialize_role(config(role, parallelism={"pp": 2}), Recorder())


def test_one_good_source_does_not_excuse_a_bad_one():
    with pytest.raises(ReplayPipelineError, match=r"timing\.pp_size"):
        materialize_role(config("decode", parallelism={"decode_pp": 1}, timing={"pp": 1, "pp_size": 4}), Recorder())


@pytest.mark.parametrize("value", [0, -1, "1", 1.0, True, None, "auto", [1]])
def test_what_is_no_statement_of_one_stage_is_rejected(value):
    estimator = Recorder()
    with pytest.raises(ReplayPipelineError):
        materialize_role(config("aggregated", timing={"pp": value}), estimator)
    assert estimator.asked == []


@pytest.mark.parametrize("role", ROLES)
def test_the_preflight_checks_the_public_configuration(role):
    preflight({"workers": {role: {"parallelism": {"pipeline": 1, "tensor": 8}}}})
    preflight({"workers": {role: {}}})
    preflight({})
    with pytest.raises(ReplayPipelineError, match=rf"workers\.{role}\.parallelism\.pipeline' = 4"):
        preflight({"workers": {role: {"parallelism": {"pipeline": 4}}}})


def test_the_preflight_stops_a_compilation_before_it_estimates_capacity():
    """The order of a compilation: preflight, then roles, each of which estimates capacity."""
    estimator = Recorder()

    def compile_prediction(prediction):
        preflight(prediction)
        return [materialize_role(config(role), estimator) for role in prediction["workers"]]

    public = {"workers": {"prefill": {"parallelism": {"pipeline": 1}}, "decode": {"parallelism": {"pipeline": 2}}}}
    with pytest.raises(ReplayPipelineError, match=r"workers\.decode"):
        compile_prediction(public)
    assert estimator.asked == []


@pytest.mark.parametrize(
    "prediction", [{"workers": 3}, {"workers": {"decode": []}}, {"workers": {"decode": {"parallelism": 1}}}]
)
def test_sections_that_are_no_tables(prediction):
    with pytest.raises(UsageError, match="must be a table"):
        preflight(prediction)


def test_an_unknown_role():
    with pytest.raises(UsageError, match="use one of aggregated, prefill, decode"):
        materialize_role(config("router"), Recorder())
