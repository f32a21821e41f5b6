"""The report's table of predictions before and after calibration."""

from __future__ import annotations

from calib.judging import compare_before_after
from calib.measure import Campaign, records
from calib.reporting.table import Column, Table


def before_after_tables(campaign: Campaign) -> list[Table]:
    """One table, or none where the campaign cannot answer."""
    found = compare_before_after(campaign)
    if found.empty:
        return []
    return [
        Table(
            name="before_after",
            title="Throughput before and after calibration, every PP>1 point at matched concurrency",
            note=(
                "MAPE of throughput, each prediction a multiple of the throughput measured at TP=G/PP=1 and the same "
                "concurrency. Fitted predictions leave the predicted model out; form, pooling and balance were fixed beforehand."
            ),
            columns=(
                Column("backend", "backend"), Column("approach", "prediction"), Column("scheme", "scheme"),
                Column("points", "points", "int"), Column("predicted", "predicted", "int"),
                Column("mape_pct", "MAPE [%]", "points"), Column("full_mape_pct", "C >= pp [%]", "points"),
                Column("starved_mape_pct", "C < pp [%]", "points"), Column("note", "why it differs", "long"),
            ),
            rows=tuple(records(found)),
        )
    ]  # fmt: skip
