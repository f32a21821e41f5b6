"""Campaigns whose truth is known, by name: what each teaches, and what calib has to say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calib.emulator.law import FromLoad, HyperbolicLaw, Law, Levels, Log2Law
from calib.emulator.physics import EmulatedModel, EngineSpec
from calib.errors import UsageError
from calib.measure import EngineFlag
from calib.names import Matching, Verdict

GPUS = 8
DEGREES = ((8, 1), (4, 2), (2, 4), (1, 8))  # (tp, pp), in the order they are measured
S = 0.2
FLAGS: Mapping[str, EngineFlag] = {"max_num_seqs": 1024, "chunked_prefill": True, "async_scheduling": True}


@dataclass(frozen=True)
class Scenario:
    """One campaign.

    Attributes
    ----------
    truth
        ``s`` of the law, None where the law is not ``1 - s*log2(pp)``.
    verdict, rules
        What calib has to say: the verdict on the form, and screening rules that must be among the findings.
    changes
        pp -> fields of the engine that differ there; flags: pp -> what ``campaign.toml`` then says of the engine.
    """

    name: str
    title: str
    teaches: str
    law: Law
    verdict: Verdict
    truth: float | None = None
    rules: frozenset[str] = frozenset()
    knee: float = 24.0
    concurrencies: tuple[int, ...] = (8, 16, 24, 32)  # enough to fill eight stages
    matching: Matching = "peak"
    backend: str = "vllm"
    jitter: float = 0.005
    run_noise: float = 0.008
    changes: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    flags: Mapping[int, Mapping[str, EngineFlag]] = field(default_factory=dict)

    def engine(self, tp: int, pp: int, seed: int = 0) -> EngineSpec:
        """The engine of one configuration."""
        changed = self.changes.get(pp, {})
        return EngineSpec(
            model=EmulatedModel(knee=self.knee), law=self.law, gpus=GPUS, tp=tp, pp=pp, backend=self.backend, seed=seed,
            jitter=self.jitter, run_noise=self.run_noise, penalty=changed.get("penalty", 0.0),
            early_end=changed.get("early_end", 0.0),
        )  # fmt: skip

    def engine_flags(self, pp: int) -> dict[str, EngineFlag]:
        """The engine flags that ``campaign.toml`` states for one pp."""
        return {**FLAGS, **self.flags.get(pp, {})}


_PP = (2, 4, 8)
SCENARIOS: dict[str, Scenario] = {
    s.name: s
    for s in (
        Scenario(
            "clean-log2", "An engine that follows 1 - 0.2*log2(pp)",
            "the whole loop: s is found, its interval holds the truth, and the form fits",
            Log2Law(S), "FIT", truth=S,
        ),
        Scenario(
            "cliff", "An engine that breaks at TP2/PP4",
            "a cliff at one pp is no log2 law: the form is refused, and the reasons say where it breaks",
            Levels({2: 0.8, 4: 0.36, 8: 0.42}), "REFUSED", backend="trtllm",
        ),
        Scenario(
            "non-monotone", "An engine whose efficiency rises from PP=2 to PP=4 under load",
            "below 16 requests the law holds, above it does not: one s would hide that, so the form is refused",
            FromLoad(16, below=Log2Law(S), above=Levels({2: 0.55, 4: 0.72, 8: 0.4})), "REFUSED",
            matching="matched", backend="trtllm",
        ),
        Scenario(
            "unsaturated", "A sweep that ends before the engine is saturated",
            "throughput still rises at the last concurrency, so the peaks are not known to be peaks",
            Log2Law(S), "FIT", truth=S, knee=80.0, concurrencies=(8, 16, 24), rules=frozenset({"peak_at_edge"}),
        ),
        Scenario(
            "early-end", "PP engines that end outputs early, although told not to",
            "outputs shorter than asked for: tokens, and so throughputs, are not those of the workload",
            Log2Law(S), "FIT", rules=frozenset({"early_end", "osl_differs"}),
            changes={4: {"early_end": 0.5}, 8: {"early_end": 0.7}},
        ),
        Scenario(
            "engine-flag", "PP engines without the asynchronous scheduling that the baseline has",
            "a flag that differs from the baseline's is charged to the pipeline: efficiencies are 2 to 5 % below the law's",
            Log2Law(S), "FIT", rules=frozenset({"engine_flags"}),
            changes={pp: {"penalty": 0.06} for pp in _PP}, flags={pp: {"async_scheduling": False} for pp in _PP},
        ),
        Scenario(
            "growing-overhead", "An engine whose overhead grows with load",
            "s = 0.08 + 0.035*log2(C): one s holds for one load only, and calib warns that it drifts",
            Log2Law(0.08, 0.035), "FIT", backend="sglang", matching="matched",
        ),
        Scenario(
            "constant-cost", "An engine with a constant cost per microbatch and stage",
            "the truth is 1/(1 + 0.27*(pp-1)), near 1 - 0.22*log2(pp) at three levels: FIT does not prove a form",
            HyperbolicLaw(0.27), "FIT", backend="sglang",
        ),
    )
}  # fmt: skip


def get_scenario(name: str) -> Scenario:
    """The scenario called ``name``.

    Raises
    ------
    UsageError
        No such scenario.
    """
    if name not in SCENARIOS:
        raise UsageError(
            "is not a scenario", field="--scenario", value=name, remedy=f"use one of {', '.join(SCENARIOS)}"
        )
    return SCENARIOS[name]
