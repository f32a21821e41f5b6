"""The first screen: can the prediction be trusted, and for what."""

from __future__ import annotations

from calib.fitting import SeriesFit
from calib.judging import CALIBRATED_BY_OTHERS, OWN_OPTIMUM, PER_MODEL, UNCALIBRATED
from calib.measure import records
from calib.names import IN_SAMPLE
from calib.reporting.contents import ReportData


def headline(data: ReportData) -> list[dict[str, str]]:
    """A few sentences a backend that answer whether the prediction can be trusted."""
    lines = []
    for backend in sorted({str(s.key["backend"]) for s in data.fit.series}):
        series = [s for s in data.fit.series if s.key["backend"] == backend]
        verdicts = {s.verdict for s in series}
        verdict = (
            "REFUSED" if "REFUSED" in verdicts and "FIT" not in verdicts else "FIT" if verdicts == {"FIT"} else "WARN"
        )
        lines.append({"backend": backend, "verdict": verdict, "text": _trust(data, backend, series)})
    return lines


def _trust(data: ReportData, backend: str, series: list[SeriesFit]) -> str:
    said = []
    for word, verb in (("FIT", "fits"), ("REFUSED", "is refused for"), ("WARN", "could not be tested for")):
        hit = [str(s.key["model"]) for s in series if s.verdict == word]
        if hit:
            said.append(
                f"{verb} {len(hit)} of {len(series)} models" + ("" if word == "FIT" else f" ({', '.join(hit)})")
            )
    text = f"The form {data.fit.form.formula} {', '.join(said)}."
    table = data.accuracy.summary
    for r in records(table[(table["backend"] == backend) & (table["approach"] == PER_MODEL)]):
        if r["predicted"]:
            scheme = "In sample" if r["scheme"] == IN_SAMPLE else "For pp levels left out of the fit"
            text += (
                f" {scheme} the predicted efficiency is off by {r['mean_abs_error_pp']:.1f} pp on average,"
                f" {r['max_abs_error_pp']:.1f} pp at worst ({r['predicted']} of {r['points']} points)."
            )
    return text + _choice(data, backend)


def _choice(data: ReportData, backend: str) -> str:
    """Whether the prediction now picks the right configuration, and what the uncalibrated pick cost."""
    rows = [r for table in data.decisions if table.name == "decisions" for r in table.rows]
    own = [r for r in rows if r["backend"] == backend and r["at"] == OWN_OPTIMUM]
    after = [r for r in own if r["approach"] == CALIBRATED_BY_OTHERS]
    before = [r["regret_pct"] for r in own if r["approach"] == UNCALIBRATED]
    if not after:
        return ""
    right = sum(r["regret_pct"] == 0 for r in after)
    text = f" Calibrated on other models it picks the best configuration for {right} of {len(after)} models"
    if before:
        text += (
            f"; the uncalibrated model for {sum(r == 0 for r in before)} of {len(before)}, losing up to "
            f"{max(before):.0f} % of the throughput"
        )
    return text + "."


def changes_text(data: ReportData) -> str:
    """What changed since the last released coefficients, in one sentence."""
    return data.changes or "nothing to compare with; no coefficients of this campaign were released before."
