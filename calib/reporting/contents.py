"""Everything a report is made from, and its tables in the order they are shown."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calib.coefficients import CoefficientSet
from calib.fitting import Decomposition, FitResult
from calib.judging import (
    Accuracy,
    Fitted,
    at_every_concurrency,
    by_the_model,
    predicted_points,
    vary_choices,
    vary_physics,
)
from calib.measure import Campaign, Finding
from calib.reporting.accuracy_tables import accuracy_table, predicted_table, throughput_tables
from calib.reporting.before_after_tables import before_after_tables
from calib.reporting.coefficient_tables import coefficient_table, concurrency_tables
from calib.reporting.contest_tables import contest_tables, decision_tables
from calib.reporting.efficiency_tables import decomposition_table, deviation_tables, log_share_tables, observed_table
from calib.reporting.pipeline_tables import physics_tables, roofline_tables, sensitivity_tables
from calib.reporting.published_tables import published_tables
from calib.reporting.source_tables import balance_table, provenance_table, quality_table
from calib.reporting.table import Table


def command(data: ReportData) -> str:
    """The command that makes these results again."""
    c, parts = data.coefficients, ["calib", "run", data.campaign.name]
    for option, value, default in (
        ("--matching", c.matching, data.campaign.config.matching),
        ("--balance", c.balance_source.step, "decode"),
        ("--form", c.form, "log2"),
        ("--reference", c.reference, "baseline"),
        ("--pooling", c.pooling, "none"),
        ("--error-floor", f"{c.error_floor:g}", "0.02"),
    ):
        parts += [option, value] if value != default else []
    return " ".join(shlex.quote(p) for p in parts)


@dataclass(frozen=True)
class ReportData:
    """Everything a report is made from."""

    campaign: Campaign
    decomposition: Decomposition
    fit: FitResult
    coefficients: CoefficientSet
    accuracy: Accuracy
    findings: tuple[Finding, ...]
    changes: str = ""
    figures: bool = True
    drawn: dict[str, bytes] = field(default_factory=dict, repr=False)

    # What follows is worked out when it is first shown: a summary in a terminal needs little of it.
    @functools.cached_property
    def sensitivity(self) -> tuple[Mapping[str, Any], ...]:
        """How much the estimate hangs on choices that could have been made otherwise."""
        return tuple(vary_choices(self.campaign, form=self.fit.form.name))

    @functools.cached_property
    def physics(self) -> tuple[Mapping[str, Any], ...]:
        """How much it hangs on what is assumed of the pipeline."""
        return tuple(vary_physics(self.campaign))

    @functools.cached_property
    def everywhere(self) -> Fitted | None:
        """The fit at every measured concurrency, beside one at the peak."""
        return at_every_concurrency(self.decomposition) if self.decomposition.matching == "peak" else None

    @functools.cached_property
    def model(self) -> FitResult | None:
        """The fit with the model's own prediction as the reference, where the campaign has what it takes."""
        return self.fit if self.decomposition.reference == "model" else by_the_model(self.decomposition)

    @functools.cached_property
    def decisions(self) -> list[Table]:
        """Whether the prediction picks the right configuration."""
        return decision_tables(self.decomposition)

    @functools.cached_property
    def shown(self) -> Fitted:
        """What the coefficients predict of their own points."""
        return predicted_points(self.fit, self.coefficients)

    @functools.cached_property
    def tables(self) -> dict[str, Table]:
        """All tables by name, in the order they are shown."""
        return report_tables(self)


def report_tables(data: ReportData) -> dict[str, Table]:
    """All tables of the report by name, in the order they are shown."""
    tables = [
        observed_table(data.decomposition),
        decomposition_table(data.decomposition),
        coefficient_table(data.fit),
        *concurrency_tables(data.fit),
        *deviation_tables(data.fit),
        *log_share_tables(data.model),
        accuracy_table(data.accuracy, data.fit),
        *contest_tables(data.coefficients.contest),
        *data.decisions,
        *throughput_tables(data.shown, data.everywhere),
        *published_tables(data.campaign, data.decomposition, data.fit, data.accuracy),
        predicted_table(data.accuracy),
        *before_after_tables(data.campaign),
        *sensitivity_tables(data.sensitivity),
        *physics_tables(data.physics),
        balance_table(data.coefficients),
        *roofline_tables(data.campaign),
        quality_table(data.findings),
        provenance_table(data.coefficients),
    ]
    return {t.name: t for t in tables}
