"""Observed PP efficiency, and what stage imbalance explains of it.

    eta               = x(tp, pp) / x(tp=G, pp=1)        x = output throughput per GPU, same series and GPU count
    total_penalty     = 1 - eta
    balance_share     = 1 - balance_factor
    scheduling_share  = balance_factor - eta
    residual          = eta / balance_factor

Shares are in percentage points and add up to the total; a negative one is a gain and stays visible. This is the
decomposition with ``reference = "baseline"`` that was published for the H200 campaign (discussion of
ai-dynamo/aiconfigurator pull request 1459). With ``reference = "model"``

    eta               = K * balance_factor * fill_factor * residual
    K                 = ideal(tp, pp, C) / ideal(G, 1, C0)      ideal = `calib.pipeline.workload.ideal_throughput`

the logarithms add up to that of eta, so their shares add up to 100 % of it. ``explained`` is what the residual multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calib.errors import UsageError
from calib.fitting.matching import corrected, observe, with_errors
from calib.fitting.shares import explain_point
from calib.measure import SERIES, Campaign, Finding, natural_key, usable
from calib.names import BalanceKind, Matching, Reference
from calib.notebook import LEFT, RIGHT, ROWS, decimal_text, html_block, html_table
from calib.pipeline import BALANCES

ERROR_FLOOR = 0.02  # relative error of a throughput where nothing better is known [1]
SMALLEST_FLOOR = 1e-6  # relative; below it the covariance is no longer positive in double precision

# One row an efficiency.
COLUMNS = (
    *SERIES, "tp", "pp", "concurrency", "baseline_concurrency", "baseline_id", "output_tokens_per_s",
    "baseline_output_tokens_per_s", "efficiency", "rel_error", "error_method", "baseline_rel_error",
    "baseline_error_method", "rules", "balance_factor", "balance_status", "total_penalty_pp", "balance_share_pp",
    "balance_share_of_total_pct", "scheduling_share_pp", "k_model", "fill_factor", "explained", "residual",
)  # fmt: skip
LOG_PARTS = {"k_model": "TP scaling and microbatch (K)", "balance_factor": "balance", "fill_factor": "fill",
             "residual": "scheduling and the rest"}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Decomposition:
    """Efficiencies of a campaign with their decomposition.

    Attributes
    ----------
    table : DataFrame
        One row an observed efficiency with pp > 1; columns `COLUMNS`. Efficiencies, errors, balance and residual are
        ratios [1], shares and penalties percentage points, throughput tok/s.
    findings : tuple of Finding
        Series and points that could not be used, and why.
    """

    campaign: Campaign
    matching: Matching
    error_floor: float
    balance: BalanceKind
    table: pd.DataFrame
    findings: tuple[Finding, ...]
    reference: Reference = "baseline"
    end_effect: bool = False

    def __repr__(self) -> str:
        return f"<Decomposition of {self.campaign.name}: {len(self.table)} efficiencies, reference {self.reference}>"

    def _repr_html_(self) -> str:
        table, model = self.table, self.reference == "model"
        columns = {
            "model": LEFT,
            "backend": LEFT,
            "TP": RIGHT,
            "PP": RIGHT,
            "C [requests]": RIGHT,
            "efficiency [1]": RIGHT,
        }
        parts: dict[str, tuple[str, int]] = {
            "total penalty [pp]": ("total_penalty_pp", 1), "balance [pp]": ("balance_share_pp", 1),
            "scheduling [pp]": ("scheduling_share_pp", 1),
        }  # fmt: skip
        if model:
            parts = {"K [1]": ("k_model", 3), "balance [1]": ("balance_factor", 3), "fill [1]": ("fill_factor", 3),
                     "residual [1]": ("residual", 3)}  # fmt: skip
        rows = [
            (r["model"], r["backend"], r["tp"], r["pp"], decimal_text(r["concurrency"], 0), decimal_text(r["efficiency"], 3),
             *(decimal_text(r[name], digits) for name, digits in parts.values()))
            for r in table.head(ROWS).to_dict("records")
        ]  # fmt: skip
        how = "each side at its best concurrency" if self.matching == "peak" else "the same concurrency on both sides"
        return html_block(
            "Observed efficiency",
            f"Throughput per GPU over that of TP=G/PP1, {how}; reference {self.reference}, balance of the "
            f"{self.balance} step; pp is percentage points.",
            html_table(columns | dict.fromkeys(parts, RIGHT), rows, len(table), "decomposition.table"),
            f"{len(self.findings)} findings." if self.findings else "",
        )  # fmt: skip

    def log_shares(self) -> pd.DataFrame:
        """The log-additive decomposition: one row a point, one column a part, ``100*ln(part)`` [log-%].

        The parts add up to ``total``, line by line; ``<part>_pct`` is their share of it [%]. With ``reference = "baseline"``
        there is neither K nor fill, and their parts are 0.
        """
        rows = self.table[["backend", "model", "tp", "pp", "concurrency"]].copy()
        total = 100 * np.log(self.table["efficiency"])
        for name in LOG_PARTS:
            rows[name] = 100 * np.log(self.table[name])
        rows["total"] = total
        for name in LOG_PARTS:
            rows[f"{name}_pct"] = 100 * rows[name] / total.where(total.abs() > 1e-9)
        return rows


def decompose(
    campaign: Campaign,
    *,
    matching: Matching | None = None,
    reference: Reference = "baseline",
    error_floor: float = ERROR_FLOOR,
    balance: BalanceKind = "decode",
    end_effect: bool = False,
) -> Decomposition:
    """Observed efficiencies of all usable runs with pp > 1, decomposed.

    Parameters
    ----------
    campaign
        As `load_campaign` returns it, screened.
    matching
        ``peak``: each side at its best concurrency; ``matched``: the same concurrency on both sides. The campaign's own
        where it is None.
    reference
        ``baseline``: the residual is what balance leaves of the efficiency; ``model``: what K, balance and fill leave of it,
        for coefficients that multiply the model's own ideal-PP throughput.
    error_floor
        Relative error of a throughput [1] below which none is believed.
    balance
        Balance of a pure ``decode`` step, of the workload's ``mixed`` steps, or 1 for ``none``.
    end_effect
        Replace every throughput by that of Little's law, ``C*OSL/(TTFT + (OSL-1)*ITL)``, which does not lose the requests
        that a run of fixed duration cuts off; points without the latencies are set aside.

    Raises
    ------
    UsageError
        An unknown matching or reference, or peak matching of ratios that are stated at several concurrencies.
    """
    matching = matching or campaign.config.matching
    _check_options(matching, reference, error_floor, balance)
    runs = usable(campaign)
    findings: list[Finding] = []
    if end_effect:
        runs, findings = corrected(runs)
    points, missing = observe(with_errors(campaign, runs, error_floor), matching, error_floor)
    findings += missing
    kept: list[dict[str, Any]] = []
    for point in points:
        explained, said = explain_point(campaign, point, balance, reference)
        findings += [f for f in said if f not in findings]
        if explained:
            kept.append(explained)
    table = pd.DataFrame(kept, columns=list(COLUMNS))
    table = table.astype({"concurrency": "Int64", "baseline_concurrency": "Int64"})
    last = ("concurrency", "pp") if matching == "matched" else ("pp", "concurrency")
    order = ["backend", "backend_version", *(c for c in SERIES if not c.startswith("backend")), *last]
    table = table.sort_values(order, kind="stable", na_position="first", ignore_index=True, key=natural_key)
    return Decomposition(campaign, matching, error_floor, balance, table, tuple(findings), reference, end_effect)


def _check_options(matching: str, reference: str, error_floor: float, balance: str) -> None:
    if matching not in ("peak", "matched"):
        raise UsageError("must be 'peak' or 'matched'", field="matching", value=matching)
    if reference not in ("baseline", "model"):
        raise UsageError("must be 'baseline' or 'model'", field="reference", value=reference)
    if not SMALLEST_FLOOR <= error_floor < 1:
        raise UsageError(f"must lie between {SMALLEST_FLOOR:g} and 1", field="error_floor", value=error_floor)
    if balance not in BALANCES:
        raise UsageError("is not a known balance", field="balance", value=balance, remedy=f"use {', '.join(BALANCES)}")
