"""What the report shows, as tables whose columns know their unit and how they are written."""

from __future__ import annotations

from typing import Any

import pandas as pd

from calib.fitting import LOG_PARTS, Decomposition, FitResult
from calib.measure import records
from calib.reporting.table import CONFIGURATION, Column, Table, cell_text, varying


def deviation_tables(fit: FitResult) -> list[Table]:
    """The interaction of TP and PP: how far single levels lie off the curve through the others."""
    rows = [
        r if r["deviation_pct"] > -100 else r | {"deviation_pct": None, "stderr_pct": None}
        for r in records(fit.deviations())
    ]
    if not rows:
        return []
    return [
        Table(
            name="deviations",
            title="Levels that break the curve",
            note=(
                "How far each (tp, pp) lies off the curve through the other levels, with its standard error and "
                "p-value; empty where that curve is negative. "
                "Where a cliff is real, `--form free` publishes one value a level instead of a curve, and "
                "nothing between."
            ),
            columns=(
                *CONFIGURATION[:4],
                Column("deviation_pct", "deviation [%]", "points"),
                Column("stderr_pct", "standard error [%]", "points"),
                Column("p_value", "p", "p"),
            ),
            rows=tuple(rows),
        )
    ]


def log_share_tables(model: FitResult | None) -> list[Table]:
    """The log-additive decomposition of ``reference = "model"``; the parts add up to the total in every row."""
    if model is None:
        return []
    decomposition = model.decomposition
    parts = [Column(name, f"{label} [log-%]", "points") for name, label in LOG_PARTS.items()]
    shares = [Column(f"{name}_pct", f"{label} of total [%]", "percent") for name, label in LOG_PARTS.items()]
    return [
        Table(
            name="log_shares",
            title="Where the throughput goes, by the model's own account",
            note=(
                "100*ln of each factor of efficiency = K * balance * fill * residual. The parts add up to the total,"
                " line by line, and their shares to 100 %. Positive is a gain."
            ),
            columns=(*CONFIGURATION, *parts, Column("total", "total [log-%]", "points"), *shares),
            rows=tuple(records(decomposition.log_shares())),
        )
    ]


def observed_table(decomposition: Decomposition) -> Table:
    """Observed efficiency, one row a series and concurrency, one column a pp."""
    table = decomposition.table
    levels = sorted({int(p) for p in table["pp"]})
    rows: list[dict[str, Any]] = []
    more = tuple(c for c in varying(table) if c.key != "backend_version")
    keys = ["backend", "backend_version", "model", *(c.key for c in more)]
    if decomposition.matching == "matched":
        keys.append("concurrency")
    for key, group in table.groupby(keys, dropna=False, sort=False):
        row: dict[str, Any] = dict(zip(keys, key, strict=True))
        for r in records(group):
            row[f"pp{int(r['pp'])}"] = r["efficiency"]
        if decomposition.matching == "peak":
            row["concurrency"] = _peaks(group)
        rows.append(row)
    peak = decomposition.matching == "peak"
    how = "each side at its best concurrency" if peak else "the same concurrency on both sides"
    return Table(
        name="observed",
        title="Observed efficiency",
        note=f"Output throughput per GPU over that of TP{_gpus(table)}/PP1 in the same campaign, {how}. 1 is no loss.",
        columns=(
            Column("backend", "backend"),
            Column("backend_version", "version"),
            Column("model", "model"),
            *more,
            Column(
                "concurrency",
                "peak C (PP1 / PP>1) [requests]" if peak else "C [requests]",
                "text" if peak else "int",
            ),
            *(Column(f"pp{level}", f"PP={level} [1]", "ratio") for level in levels),
        ),
        rows=tuple(rows),
        empty="No efficiency could be formed.",
    )


def _gpus(table: pd.DataFrame) -> str:
    return "/".join(str(g) for g in sorted(set(table["gpus"]))) or "G"


def _peaks(group: pd.DataFrame) -> str:
    own = [cell_text(c, "int") for c in group.sort_values("pp")["concurrency"]]
    base = sorted({cell_text(c, "int") for c in group["baseline_concurrency"]})
    if set(own) | set(base) == {""}:
        return "not stated"
    return f"{'/'.join(base)} / {', '.join(own)}"


def decomposition_table(decomposition: Decomposition) -> Table:
    """What imbalance explains of the penalty and what is left to scheduling, one row a point."""
    rows = records(decomposition.table)
    return Table(
        name="decomposition",
        title="Where the throughput goes",
        note=(
            "Total penalty = balance share + scheduling share, in percentage points (pp) of the baseline's throughput. The "
            "scheduling share also holds the change of TP degree and the pipe fill: no run on fewer GPUs separates them. "
            "A negative share is a gain."
        ),
        columns=(
            *CONFIGURATION,
            Column("efficiency", "efficiency [1]", "ratio"),
            Column("total_penalty_pp", "total penalty [pp]", "points"),
            Column("balance_share_pp", "balance share [pp]", "points"),
            Column("scheduling_share_pp", "scheduling share [pp]", "points"),
            Column("balance_share_of_total_pct", "balance of total [%]", "percent"),
            Column("balance_factor", "balance factor [1]", "ratio"),
            Column("balance_status", "balance is"),
            Column("residual", "residual [1]", "ratio"),
        ),
        rows=tuple(rows),
        empty="No efficiency could be decomposed.",
    )
