"""``aiconfigurator-core`` (extra ``aic``) as the prediction model: its ideal step latencies, corrected by a coefficient file.

Ideal step latencies come from the package, balance and occupancy from `calib.pipeline`, the residual from the file. Throughput
follows the cycle and is calibrated; TTFT and TPOT follow the traversal, and are corrected in structure only. Concurrency is
a target: C requests are in flight, in microbatches of ``ceil(C/pp)``, where the package's own figure is its batch size times pp.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from calib.coefficients import MODEL_FIELD, Correction, Prediction, Predictor
from calib.errors import BreakdownError
from calib.judging import Candidate, gpu_layouts, require_reference
from calib.pipeline import (
    NOT_CALIBRATED,
    BreakdownProvider,
    Breakdowns,
    Latency,
    StepKind,
    StepRequest,
    ideal_throughput,
    microbatch_size,
    steady_state_of,
    traversal_latency,
)


@dataclass(frozen=True)
class EnginePoint:
    """One configuration: degrees, ISL and OSL [tokens], and the requests in flight of one replica.

    ``config`` is a folder with the model's Hugging Face ``config.json``, where the package does not know the model.
    """

    model: str
    system: str
    backend: str
    tp: int
    pp: int
    isl: int
    osl: int
    concurrency: int
    config: str | None = None


@dataclass(frozen=True)
class Ideal:
    """What the package and the pipeline model say of a point.

    ``throughput`` is that of an ideal pipe [tok/s] of one replica; ``balance_factor`` and ``occupancy`` [1] are what uneven
    stages and a pipe that is not full leave of it; ``latency`` is that of the traversal [ms], not calibrated.
    """

    throughput: float
    balance_factor: float
    occupancy: float
    latency: Latency
    microbatch: int
    status: str
    tables: str


@dataclass(frozen=True)
class EngineResult:
    """A calibrated throughput per replica, with the ideal it came from."""

    point: EnginePoint
    ideal: Ideal
    throughput: Prediction

    def row(self) -> dict[str, Any]:
        """One flat row: throughput of the replica and per GPU [tok/s] with 95 % interval, latencies [ms], what was applied."""
        gpus, made = self.point.tp * self.point.pp, self.throughput
        value, low, high = (float(x[0]) for x in (made.value, made.low, made.high))
        known = low == low
        return {
            "model": self.point.model, "system": self.point.system, "backend": self.point.backend, "tp": self.point.tp,
            "pp": self.point.pp, "isl": self.point.isl, "osl": self.point.osl, "concurrency": self.point.concurrency,
            "microbatch": self.ideal.microbatch, "ideal_output_tokens_per_s": self.ideal.throughput,
            "balance_factor": self.ideal.balance_factor, "occupancy": self.ideal.occupancy,
            "predicted_output_tokens_per_s": value, "predicted_output_tokens_per_s_low95": low if known else None,
            "predicted_output_tokens_per_s_high95": high if known else None,
            "predicted_output_tokens_per_s_per_gpu": value / gpus, "flag": str(made.flags[0]),
            "ttft_ms": self.ideal.latency.ttft_ms, "tpot_ms": self.ideal.latency.tpot_ms, "latency_flag": NOT_CALIBRATED,
            "tables": self.ideal.tables, "calib_applied": made.applied,
        }  # fmt: skip


class IdealEngine:
    """A provider of step latencies, with a coefficient file of ``reference = "model"`` on top.

    Parameters
    ----------
    provider
        E.g. `calib.pipeline.providers.kernel_tables.AiconfiguratorProvider`.
    partition
        How the backend splits layers over stages: ``vllm`` or ``even``.
    """

    def __init__(self, provider: BreakdownProvider, partition: str) -> None:
        self._provider = provider
        self._partition = partition

    def ideal(self, point: EnginePoint) -> Ideal:
        """Ideal throughput, balance, occupancy and latency of a point.

        Raises
        ------
        BreakdownError
            The tables do not cover the model, system, backend or degrees.
        """
        decode, mixed = (self._provider.step(self._request(point, kind)) for kind in ("decode", "mixed"))
        both = Breakdowns(
            format="calib-breakdowns", format_version=1, provider=self._provider.provider, steps=(decode, mixed)
        )
        at = {name: getattr(point, name) for name in ("tp", "pp", "isl", "osl", "concurrency")}
        throughput = ideal_throughput(both, point.model, point.backend, **at)
        assert throughput is not None  # both steps are there
        state = steady_state_of(decode, self._partition, point.concurrency)
        return Ideal(
            throughput=throughput,
            balance_factor=state.balance_factor,
            occupancy=state.occupancy,
            latency=traversal_latency(decode, mixed, self._partition, point.concurrency),
            microbatch=microbatch_size(point.concurrency, point.pp),
            status=decode.status,
            tables=f"{both.provider.name} {both.provider.version}, {both.provider.note}",
        )

    def predict(
        self,
        predictor: Predictor,
        point: EnginePoint,
        *,
        backend_version: str,
        precision: str | None = None,
        allow_refused: Collection[str] = (),
        extrapolate: bool | Collection[str] = False,
        correction: Correction = "on",
    ) -> EngineResult:
        """Calibrated output throughput [tok/s] of one replica; ``backend_version`` is the engine's that is deployed.

        Raises
        ------
        ReferenceMismatchError
            The coefficients multiply a measured baseline, not a model's own throughput.
        PredictionError, BreakdownError
            As `Predictor.throughput` and `ideal`.
        """
        require_reference(predictor, "model")
        ideal = self.ideal(point)
        table: dict[str, Any] = {
            "model": point.model, "system": point.system, "backend": point.backend, "backend_version": backend_version,
            "tp": point.tp, "pp": point.pp, "isl": point.isl, "osl": point.osl, "concurrency": point.concurrency,
            "balance_factor": ideal.balance_factor * ideal.occupancy, MODEL_FIELD: ideal.throughput,
        } | ({} if precision is None else {"precision": precision})  # fmt: skip
        made = predictor.throughput(table, allow_refused=allow_refused, extrapolate=extrapolate, correction=correction)
        return EngineResult(point, ideal, made)

    def candidates(self, point: EnginePoint, gpus: int, concurrencies: Collection[int]) -> list[Candidate]:
        """Every (tp, pp, replicas) of ``gpus`` GPUs in powers of two, at every concurrency that the replicas share evenly.

        Configurations that the tables do not cover are left out.
        """
        found = []
        for tp, pp, replicas in gpu_layouts(gpus):
            for c in sorted({c for c in concurrencies if c % replicas == 0}):
                at = replace(point, tp=tp, pp=pp, concurrency=c // replicas)
                try:
                    ideal = self.ideal(at)
                except BreakdownError:
                    continue
                own = 1.0 if pp == 1 else ideal.balance_factor * ideal.occupancy
                found.append(
                    Candidate(
                        tp, pp, replicas, c, ideal.throughput, ideal.throughput, own, ideal.latency.ttft_ms,
                        ideal.latency.tpot_ms,
                    )
                )  # fmt: skip
        return found

    def _request(self, point: EnginePoint, kind: StepKind) -> StepRequest:
        return StepRequest(
            model=point.model, backend=point.backend, system=point.system, tp=point.tp, pp=point.pp,
            concurrency=point.concurrency, isl=point.isl, osl=point.osl, status="computed", config=point.config, kind=kind,
        )  # fmt: skip
