"""Breakdowns from ``aiconfigurator-core`` (extra ``aic``): measured kernel tables of H100, H200, B200 and others.

The package estimates one decode step op by op; no GPU is needed. Facts about its interface are those of 0.12.0.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from calib.errors import BreakdownError, MissingExtraError
from calib.pipeline.breakdown import Provider, Step, StepRequest, answer
from calib.pipeline.layout import check_op_counts
from calib.pipeline.steady_state import microbatch_size

PACKAGE = "aiconfigurator-core"


class AiconfiguratorProvider:
    """Decode-step latencies from the package's tables for one system.

    Parameters
    ----------
    system
        The package's name of the GPU system, e.g. ``h200_sxm``.
    versions
        Table version per backend; the package's current one where a backend is not named. The tables are of a few engine
        versions only; which one was used is stated in ``provider.note``.

    Raises
    ------
    MissingExtraError
        The package is not installed.
    """

    def __init__(self, system: str, versions: dict[str, str] | None = None) -> None:
        self._sdk = {name: _import(name) for name in ("perf_database", "models", "config", "rust_engine_step")}
        self._system = system
        self._wanted = dict(versions or {})
        self._databases: dict[str, Any] = {}
        logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)

    @property
    def provider(self) -> Provider:
        """Package, version, system, and the table version of every backend asked for so far."""
        tables = ", ".join(f"{b} {d.version}" for b, d in sorted(self._databases.items()))
        return Provider(
            name=PACKAGE,
            version=importlib.metadata.version(PACKAGE),
            system=self._system,
            note=f"decode step at half the output length, tables of {tables}",
        )

    def step(self, request: StepRequest) -> Step:
        """The decode step at microbatch ``ceil(C/pp)``.

        Raises
        ------
        BreakdownError
            The tables do not cover the request.
        """
        if request.system != self._system:
            raise BreakdownError("is not this provider's system", field="system", value=request.system)
        microbatch = microbatch_size(request.concurrency, request.pp)
        try:
            database = self._database(request.backend)
            with as_file(_config_folder(request)) as folder:
                model = self._sdk["models"].get_model(
                    str(folder) if folder.is_dir() else request.model,
                    self._sdk["config"].ModelConfig(tp_size=request.tp, pp_size=request.pp),
                    request.backend,
                )
            _cross_check(model)
            ops = self._ops_ms(model, database, request, microbatch)
        except Exception as error:  # the package raises many kinds; all mean "not covered" here
            raise BreakdownError(
                f"{PACKAGE} has no step for {request.model} on {request.backend} / {request.system} at "
                f"TP{request.tp}/PP{request.pp} ({type(error).__name__}: {error})",
                remedy="give a folder with the model's config.json with --model-config, or a breakdown file",
            ) from None
        return answer(
            request,
            microbatch=microbatch,
            num_layers=int(model._num_layers),
            ops_ms={name: round(float(ms), 9) for name, ms in ops.items()},
            across_nodes=request.tp * request.pp > _gpus_per_node(database),
        )

    def _ops_ms(self, model: Any, database: Any, request: StepRequest, microbatch: int) -> dict[str, float]:
        engine, workload = self._sdk["rust_engine_step"], {"isl": request.isl, "osl": request.osl}
        if request.kind == "decode":
            _, _, ops, *_ = engine.estimate_decode_step_breakdown_with_rust(
                model, database, gen_tokens=microbatch, **workload
            )
            return dict(ops)
        found = engine.estimate_mixed_step_breakdown_with_rust(
            model,
            database,
            ctx_tokens=request.chunk_tokens if request.kind == "prefill" else min(request.chunk_tokens, request.isl),
            gen_tokens=microbatch - 1 if request.kind == "mixed" else 0,
            prefix=0,
            **workload,
        )
        return dict(found["per_op_latency_ms"])

    def _database(self, backend: str) -> Any:
        if backend not in self._databases:
            version = self._wanted.get(backend, "current")
            database = self._sdk["perf_database"].get_database(self._system, backend, version)
            if database is None:
                raise BreakdownError(f"no tables of {backend} {version} for {self._system}")
            self._databases[backend] = database
        return self._databases[backend]


def _config_folder(request: StepRequest) -> Any:
    """The user's folder, else one shipped with calib for models the package has no configuration of."""
    if request.config is not None:
        return Path(request.config)
    return files("calib.data") / "model_configs" / request.model.replace("/", "--")


def _import(name: str) -> Any:
    try:
        return importlib.import_module(f"aiconfigurator_core.sdk.{name}")
    except ImportError:
        raise MissingExtraError(
            f"{PACKAGE} is not installed", remedy="install it with pip install 'llm-calib[aic]'"
        ) from None


def _gpus_per_node(database: Any) -> int:
    """GPUs of one node of the system; a pipeline over more crosses nodes, which no campaign covers."""
    return int(database.system_spec["node"]["num_gpus_per_node"])


def _cross_check(model: Any) -> None:
    """Warn where an op's place, taken from its name, does not agree with how often the package runs it."""
    for ops in (model.context_ops, model.generation_ops):
        check_op_counts({op._name: float(op._scale_factor) for op in ops}, int(model._num_layers))
