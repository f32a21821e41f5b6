"""What the main job says in a terminal: the verdict in words, one table, and what was set aside or warned about."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from calib.fitting import KEY, FitResult, SeriesFit
from calib.judging import PER_MODEL, Accuracy
from calib.names import ONE_PP
from calib.reporting.contents import ReportData
from calib.reporting.headline import headline
from calib.reporting.table import Column, Table

_WORST = "Worst error: of a pp level left out of the fit."
_BY_SCREENING = re.compile(r"\w+ at \d+ of \d+ points")  # counted among the findings already


def verdict_paragraphs(data: ReportData, sentences: int) -> list[str]:
    """One paragraph a backend of at most so many sentences, as on the report's first screen."""
    found = []
    for line in headline(data):
        text = ". ".join(line["text"].split(". ")[:sentences]).rstrip(".") + "."
        found.append(f"{line['backend']}: {line['verdict']}. {text}")
    return found


def summary_table(fit: FitResult, accuracy: Accuracy) -> Table:
    """One row a model: verdict, estimate, interval, and the worst error at pp levels that the fit had not seen."""
    names = fit.form.parameters or ("pp",)
    several = [name for name in ("backend", "backend_version", "precision") if _tells_apart(name, fit.series)]
    columns = (
        Column("model", "model"), *(Column(n, n.replace("backend_version", "version")) for n in several),
        Column("verdict", "verdict", "verdict"), Column("s", f"{', '.join(names)} [1]"),
        Column("interval", f"95 % interval of {names[0]}"), Column("worst", "worst error [pp]", "points"),
    )  # fmt: skip
    rows = tuple(_row(s, accuracy) for s in fit.series)
    return Table("summary", "", _WORST, columns, rows)


def _tells_apart(name: str, series: tuple[SeriesFit, ...]) -> bool:
    """Whether a field of the key is needed: several backends, or several versions or precisions of one backend and model."""
    groups: dict[object, set[object]] = {}
    for s in series:
        groups.setdefault(None if name == "backend" else (s.key["backend"], s.key["model"]), set()).add(s.key[name])
    return any(len(g) > 1 for g in groups.values())


def _row(s: SeriesFit, accuracy: Accuracy) -> dict[str, Any]:
    e, points = s.estimate, accuracy.points
    own = points[(points["approach"] == PER_MODEL) & (points["scheme"] == ONE_PP)]
    for name in KEY:
        own = own[own[name].isna() if s.key[name] is None else own[name] == s.key[name]]
    worst = own["error_pp"].abs().max()
    row = {**s.key, "verdict": s.verdict, "worst": worst, "s": ", ".join(f"{v:.3f}" for v in e.values)}
    row["interval"] = f"{e.interval95[0].low:.3f} to {e.interval95[0].high:.3f}" if e.interval95 else "unknown"
    return row | (
        {"s": "-", "interval": "-"} if s.verdict == "REFUSED" else {}
    )  # a number would be taken for an estimate


def refusals(fit: FitResult) -> list[str]:
    """Why each model is refused: its strongest reason."""
    refused = [s for s in fit.series if s.verdict == "REFUSED" and s.reasons]
    return [f"{s.key['model']} on {s.key['backend']}: {s.reasons[0]}" for s in refused]


def finding_sentences(data: ReportData) -> list[str]:
    """What was set aside and what was warned about, counted by kind; the command that lists each is the caller's to name."""
    aside = Counter(f.rule for f in data.findings if f.verdict == "REJECT")
    warned = Counter(f.rule for f in data.findings if f.verdict in ("WARN", "CORRECTED"))
    own = (w for s in data.fit.series for w in s.warnings if not _BY_SCREENING.fullmatch(w))
    beside = Counter(re.sub(r" at \d+ of \d+ points", "", w.split(":")[0]) for w in own)
    said = [f"Warnings about runs: {_counted(warned)}."] if warned else []
    if beside:
        kinds = "; ".join(f"{kind} ({n} of {len(data.fit.series)} models)" for kind, n in beside.most_common())
        said.append(f"Beside the verdicts: {kinds}.")
    return [f"{_WORST} Set aside: {_counted(aside) or 'nothing'}.", *([" ".join(said)] if said else [])]


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
