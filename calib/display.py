"""How calib's objects show themselves in a notebook: one compact table each, with units, escaped and bounded in size.

Names come from files, so every cell is text, never markup. At most `ROWS` rows are shown, however many there are, and no cell
is longer than `LONGEST`; the frames behind the objects have the rest. Only the standard library is imported here, since a
coefficient file must be shown without pandas.
"""

from __future__ import annotations

import html
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calib.errors import printable

if TYPE_CHECKING:
    from calib.campaign import Campaign
    from calib.coefficients import Coefficient, CoefficientSet, Estimate
    from calib.draft import Draft
    from calib.efficiency import Decomposition
    from calib.fitting import FitResult, SeriesFit
    from calib.validation import Accuracy

ROWS = 20
LONGEST = 160  # characters of a cell
SHORT = 30  # characters up to which a cell stays on one line
LEFT, RIGHT = "left", "right"
_ESTIMATED = {"model": LEFT, "backend": LEFT, "estimate ± stderr [1]": LEFT, "95 % interval [1]": LEFT, "points": RIGHT,
              "dof": RIGHT, "verdict": LEFT}  # fmt: skip


def campaign_html(campaign: Campaign) -> str:
    """Runs by backend and model: configurations, concurrencies, the highest throughput, and what the runs are worth."""
    runs = campaign.runs
    counts = ", ".join(f"{n} {v}" for v, n in runs["verdict"].value_counts().items())
    aside = len(campaign.set_aside())
    steps = "with per-op latencies" if campaign.breakdowns else "without per-op latencies: no balance factors yet"
    groups = runs.groupby(["backend", "backend_version", "model"], sort=False)
    rows = []
    for (backend, version, model), group in itertools.islice(groups, ROWS):
        pairs = sorted(
            {(int(t), int(p)) for t, p in zip(group["tp"], group["pp"], strict=True)}, key=lambda x: (x[1], x[0])
        )
        best, ratio = group["output_tokens_per_s"].max(), group["efficiency"].max()
        rejected = int((group["verdict"] == "REJECT").sum())
        rows.append(
            (model, f"{backend} {version}", ", ".join(f"TP{t}/PP{p}" for t, p in pairs), _range(group["concurrency"]),
             len(group), rejected, _number(best, 0) or _number(ratio, 3))
        )  # fmt: skip
    rated = bool(runs["output_tokens_per_s"].notna().any())
    columns = {
        "model": LEFT, "backend": LEFT, "configurations": LEFT, "C [requests]": LEFT, "runs": RIGHT, "set aside": RIGHT,
        "highest throughput [tok/s]" if rated else "highest efficiency [1]": RIGHT,
    }  # fmt: skip
    rules = Counter(f"{f.rule} ({f.verdict})" for f in campaign.findings)
    said = ", ".join(f"{n} × {rule}" for rule, n in rules.most_common(6))
    return _block(
        f"Campaign {campaign.name}", f"{campaign.config.title}. {len(runs)} runs ({counts}), {aside} set aside, {steps}.",
        _table(columns, rows, groups.ngroups, "campaign.runs"), f"Findings: {said}." if said else "No findings.",
    )  # fmt: skip


def decomposition_html(decomposition: Decomposition) -> str:
    """The efficiencies with their shares: percentage points of the baseline, or the factors of a model reference."""
    table, model = decomposition.table, decomposition.reference == "model"
    columns = {"model": LEFT, "backend": LEFT, "TP": RIGHT, "PP": RIGHT, "C [requests]": RIGHT, "efficiency [1]": RIGHT}
    parts: dict[str, tuple[str, int]] = {
        "total penalty [pp]": ("total_penalty_pp", 1), "balance [pp]": ("balance_share_pp", 1),
        "scheduling [pp]": ("scheduling_share_pp", 1),
    }  # fmt: skip
    if model:
        parts = {"K [1]": ("k_model", 3), "balance [1]": ("balance_factor", 3), "fill [1]": ("fill_factor", 3),
                 "residual [1]": ("residual", 3)}  # fmt: skip
    rows = [
        (r["model"], r["backend"], r["tp"], r["pp"], _number(r["concurrency"], 0), _number(r["efficiency"], 3),
         *(_number(r[name], digits) for name, digits in parts.values()))
        for r in table.head(ROWS).to_dict("records")
    ]  # fmt: skip
    how = (
        "each side at its best concurrency"
        if decomposition.matching == "peak"
        else "the same concurrency on both sides"
    )
    return _block(
        "Observed efficiency",
        f"Throughput per GPU over that of TP=G/PP1, {how}; reference {decomposition.reference}, balance of the "
        f"{decomposition.balance} step; pp is percentage points.",
        _table(columns | dict.fromkeys(parts, RIGHT), rows, len(table), "decomposition.table"),
        f"{len(decomposition.findings)} findings." if decomposition.findings else "",
    )  # fmt: skip


def fit_html(fit: FitResult) -> str:
    """The estimates with their intervals and verdicts, models first, then the pools of the backends."""
    every = (*fit.series, *fit.pools)
    rows = [_estimated(s.key["model"], s.key["backend"], s.estimate, s) for s in every[:ROWS]]
    return _block(
        "Fit", f"Form {fit.form.name} on the residual, fitted to {len(fit.decomposition.table)} efficiencies; "
        f"{len(fit.series)} models: {_counted(s.verdict for s in fit.series)}.",
        _table(_ESTIMATED | {"why": LEFT}, rows, len(every), "fit.table()"),
    )  # fmt: skip


def coefficients_html(coefficients: CoefficientSet) -> str:
    """What a prediction model loads: estimates, intervals, verdicts and where each holds."""
    c = coefficients
    rows = [(*_estimated(x.model, x.backend, x.estimate, x), _domain(x)) for x in c.coefficients[:ROWS]]
    return _block(
        f"Coefficients {c.digest[:12]}",
        f"factor = {c.formula}; multiplies {c.quantity} [tok/s] of the {c.reference}, matching {c.matching}. "
        f"{len(c.coefficients)} coefficients: {_counted(x.verdict for x in c.coefficients)}; "
        f"{len(c.balance_factors)} balance factors from {c.balance_source.name} {c.balance_source.version}.",
        _table(_ESTIMATED | {"why": LEFT, "holds for": LEFT}, rows, len(c.coefficients), "coefficients.coefficients"),
    )  # fmt: skip


def accuracy_html(accuracy: Accuracy) -> str:
    """Mean and worst error of each approach, in sample and left out."""
    columns = {"backend": LEFT, "approach": LEFT, "scheme": LEFT, "points predicted": RIGHT, "mean |error| [pp]": RIGHT,
               "worst |error| [pp]": RIGHT, "worst point": LEFT}  # fmt: skip
    rows = [
        (r["backend"], r["approach"], r["scheme"], f"{r['predicted']} of {r['points']}", _number(r["mean_abs_error_pp"], 1),
         _number(r["max_abs_error_pp"], 1), r["worst_point"])
        for r in accuracy.summary.head(ROWS).to_dict("records")
    ]  # fmt: skip
    return _block(
        "Accuracy", "Predicted minus measured efficiency, in percentage points (pp).",
        _table(columns, rows, len(accuracy.summary), "accuracy.summary"),
    )  # fmt: skip


def draft_html(draft: Draft) -> str:
    """What a drafted campaign.toml states, and what it asks for."""
    lines = (*draft.missing, *draft.inferred)
    columns = dict.fromkeys(("field", "value", "stands in", "how it is known"), LEFT)
    rows = [
        (x.field, "STATE THIS" if x.value is None else ", ".join(map(str, x.value)) if isinstance(x.value, list) else x.value,
         x.place, x.words if x.value is None else f"from {x.source}")
        for x in lines[:ROWS]
    ]  # fmt: skip
    return _block(
        str(draft.path.name), f"{draft.results} runs were read; {len(draft.missing)} fields have to be stated.",
        _table(columns, rows, len(lines), "draft.missing, draft.inferred"),
        " ".join(f"{r}." for r in draft.remarks[:5]),
    )  # fmt: skip


def _estimated(
    model: str | None, backend: str | None, e: Estimate, judged: SeriesFit | Coefficient
) -> tuple[object, ...]:
    texts, spans = [], []
    for i, (name, value) in enumerate(zip(e.parameters, e.values, strict=True)):
        error = e.stderr[i] if e.stderr else None
        digits = 3 if not error else min(6, max(3, 1 - math.floor(math.log10(error))))
        texts.append(f"{name} = {value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}"))
        if e.interval95:
            spans.append(f"{e.interval95[i].low:.{digits}f} to {e.interval95[i].high:.{digits}f}")
    why = "; ".join((*judged.reasons, *judged.warnings))
    name = model or ("any other model" if backend else "any backend")
    return name, backend, ", ".join(texts), ", ".join(spans) or "unknown", e.n, e.dof, judged.verdict, why


def _domain(c: Coefficient) -> str:
    d = c.domain
    concurrency = "not stated" if d.concurrency is None else f"{_span(d.concurrency.low, d.concurrency.high)} requests"
    return (
        f"PP {', '.join(map(str, d.pp_levels))}; TP {', '.join(map(str, d.tp))}; C {concurrency}; "
        f"ISL {_span(d.isl.low, d.isl.high)}, OSL {_span(d.osl.low, d.osl.high)} tokens"
    )


def _counted(verdicts: Iterable[str]) -> str:
    return ", ".join(f"{n} {v}" for v, n in sorted(Counter(verdicts).items())) or "none"


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _number(value: Any, digits: int) -> str:
    """A number with its digits, nothing where it is not known (None, NaN, or pandas' NA, which is not imported here)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return ""
    return "" if math.isnan(number) else f"{number:.{digits}f}"


def _range(column: Any) -> str:
    known = column.dropna()
    if not len(known):
        return "not stated"
    return _span(int(known.min()), int(known.max()))


def _text(value: object) -> str:
    text = " ".join(printable(str(value)).split())
    return html.escape(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def _cell(value: object, side: str) -> str:
    text = _text(value)
    wrap = ";white-space:nowrap" if len(text) <= SHORT else ""
    return f'<td style="text-align:{side}{wrap}">{text}</td>'


def _table(columns: Mapping[str, str], rows: Sequence[Iterable[object]], total: int, rest: str) -> str:
    if not rows:
        return "<p>There is nothing to show.</p>"
    head = "".join(f'<th scope="col" style="text-align:{side}">{html.escape(n)}</th>' for n, side in columns.items())
    body = "".join(
        "<tr>" + "".join(_cell(cell, side) for cell, side in zip(row, columns.values(), strict=True)) + "</tr>"
        for row in rows
    )
    more = f"<p>{total - len(rows)} more rows in <code>{rest}</code>.</p>" if total > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _block(title: str, says: str, table: str, note: str = "") -> str:
    tail = f"<p>{_text(note)}</p>" if note else ""
    says = html.escape(" ".join(printable(says[:1000]).split()))
    return f"<div><p><strong>{_text(title)}</strong><br>{says}</p>{table}{tail}</div>"


def csv_cell(value: object) -> object:
    """A cell that a spreadsheet shows as the text it is: one that it would take for a formula gets an apostrophe.

    Names come from files, and a model may be called ``=HYPERLINK(...)``. Numbers stay numbers.
    """
    if not isinstance(value, str) or value[:1] not in ("=", "+", "-", "@", "\t", "\r"):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value
