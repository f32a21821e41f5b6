"""The engine on the real package: needs the extra ``aic``. What needs no extra is in tests/test_recommend.py."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from calib.coefficients.predictor import Predictor
from calib.errors import BreakdownError
from calib.integrations.aiconfigurator import EnginePoint, IdealEngine
from calib.pipeline.providers.kernel_tables import AiconfiguratorProvider
from calib.workflow import Options, calibrate

pytestmark = pytest.mark.aic
POINT = EnginePoint("Qwen/Qwen3-8B", "h200_sxm", "vllm", 2, 4, 4000, 1000, 64)


@pytest.fixture(scope="module")
def engine():
    pytest.importorskip("aiconfigurator_core")
    return IdealEngine(AiconfiguratorProvider("h200_sxm"), "vllm")


@pytest.fixture(scope="module")
def fitted():
    return calibrate(
        "h200-vllm-pp", Options(reference="model", matching="matched", form="log2_concurrency", pooling="partial")
    )


def test_the_ideal_ranks_pp_as_the_package_does_and_balance_is_the_campaigns(engine, fitted):
    shapes = ((8, 1), (4, 2), (2, 4), (1, 8))
    ideal = {pp: engine.ideal(dataclasses.replace(POINT, tp=tp, pp=pp)) for tp, pp in shapes}
    assert ideal[2].throughput > ideal[1].throughput
    for pp in (2, 4, 8):
        (b,) = [
            b for b in fitted.coefficients.balance_factors
            if (b.model, b.pp, b.concurrency) == (POINT.model, pp, 64)
        ]  # fmt: skip
        assert ideal[pp].balance_factor == pytest.approx(b.factor, rel=1e-6)
        assert ideal[pp].occupancy == pytest.approx(b.fill, rel=1e-6)


def test_the_calibrated_engine_is_the_decomposition_turned_around(engine, fitted):
    """Predicted over the model's own pp = 1 is K * balance * fill * residual, the efficiency the coefficient was fitted on."""
    predictor = Predictor(fitted.coefficients)
    base = engine.ideal(dataclasses.replace(POINT, tp=8, pp=1)).throughput
    table = fitted.decomposition.table
    for row in table[(table["model"] == POINT.model) & (table["concurrency"] == 64)].to_dict("records"):
        point = dataclasses.replace(POINT, tp=int(row["tp"]), pp=int(row["pp"]))
        made = engine.predict(predictor, point, backend_version="0.19.1", allow_refused=[POINT.model])
        own = predictor.coefficients
        s, u = next(c for c in own.coefficients if c.model == POINT.model).estimate.values
        residual = 1 - (s + u * 6) * np.log2(point.pp)
        assert made.throughput.value[0] / base == pytest.approx(row["explained"] * residual, rel=1e-6)


def test_what_the_tables_do_not_cover_is_an_error_that_says_so(engine):
    with pytest.raises(BreakdownError, match="has no step for unknown/model"):
        engine.ideal(dataclasses.replace(POINT, model="unknown/model"))
    with pytest.raises(BreakdownError, match="is not this provider's system"):
        engine.ideal(dataclasses.replace(POINT, system="h100_sxm"))
