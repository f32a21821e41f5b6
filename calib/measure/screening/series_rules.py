"""Rules about runs beside each other: a PP run, its baseline, its sweep."""

from __future__ import annotations

from collections.abc import Iterator

from calib.measure.campaign.config import ENGINE_FLAGS
from calib.measure.columns import IDENTITY
from calib.measure.screening.rule import NONE, Run, Seen, SeriesRule

NAMED = 3  # other places of a run that are named


def _duplicates(runs: list[Run], _: float) -> Iterator[tuple[Run, Seen]]:
    """Two runs of one identity: which one is meant is not known, so neither is used."""
    same: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        same.setdefault(tuple(str(run.row[n]) for n in IDENTITY), []).append(run)
    for group in same.values():
        others = len(group) - 1
        for run in group if others else ():
            named = [_place(r) for r in group[: NAMED + 1] if r is not run][:NAMED]
            more = f" and {others - NAMED} more" if others > NAMED else ""
            said = f"stands again in {', '.join(named)}{more}; which one holds is not stated"
            yield run, Seen(float(len(group)), said)


def _edge(runs: list[Run], _: float) -> Iterator[tuple[Run, Seen]]:
    """A sweep whose best point is its last one: nothing shows that the server was saturated."""
    sweeps: dict[tuple[int, ...], list[tuple[float, float, Run]]] = {}
    for run in runs:
        x, c = run.number("output_tokens_per_s"), run.number("concurrency")
        if x is not None and c is not None:
            sweeps.setdefault(tuple(int(run.row[n]) for n in ("tp", "pp", "dp")), []).append((x, c, run))
    for points in sweeps.values():
        best, last = max(points, key=lambda p: (p[0], -p[1])), max(p[1] for p in points)
        if len(points) > 1 and best[1] == last:
            yield best[2], Seen(last, f"throughput still rises at the last concurrency of the sweep, C={last:g}")


def _osl(runs: list[Run], limit: float) -> Iterator[tuple[Run, Seen]]:
    for run, base in _with_baseline(runs, same_concurrency=True):
        a, b = run.fact("measured_osl"), base.fact("measured_osl")
        if a is not None and b and abs(a / b - 1) > limit:
            yield run, Seen(a / b - 1, f"outputs have {a:.1f} tokens and those of its baseline {b:.1f}")


def _tools(runs: list[Run], _: float) -> Iterator[tuple[Run, Seen]]:
    for run, base in _with_baseline(runs, same_concurrency=False):
        a, b = run.row.get("tool"), base.row.get("tool")
        if isinstance(a, str) and isinstance(b, str) and a != b:
            yield run, Seen(None, f"was measured with {a} and its baseline with {b}")


def _engine(runs: list[Run], _: float) -> Iterator[tuple[Run, Seen]]:
    for run, base in _with_baseline(runs, same_concurrency=False):
        a, b = run.facts.get("engine"), base.facts.get("engine")
        if isinstance(a, dict) and isinstance(b, dict):
            differ = [
                f"{k} {a.get(k)} against {b.get(k)}" for k in ENGINE_FLAGS if k in {*a, *b} and a.get(k) != b.get(k)
            ]
            if differ:
                yield run, Seen(None, f"ran with other engine flags than its baseline: {', '.join(differ)}")


def _with_baseline(runs: list[Run], *, same_concurrency: bool) -> Iterator[tuple[Run, Run]]:
    """Each PP run with a TP=G/PP=1 run of its series."""
    bases: dict[float | None, Run] = {}
    for run in runs:
        if int(run.row["pp"]) == 1 and int(run.row["tp"]) == int(run.row["gpus"]):
            bases.setdefault(run.number("concurrency") if same_concurrency else None, run)
    for run in runs:
        if int(run.row["pp"]) > 1:
            base = bases.get(run.number("concurrency") if same_concurrency else None)
            if base is not None:
                yield run, base


def _place(run: Run) -> str:
    row = run.row
    return f"{row['source_file']} line {row['source_row']}" if row["source_row"] else str(row["source_file"])


SERIES_RULES: tuple[SeriesRule, ...] = (
    SeriesRule("duplicate_point", "REJECT", "two runs of one identity", NONE, _duplicates),
    SeriesRule("osl_differs", "WARN", "output lengths of a PP run and its baseline", 0.02, _osl),
    SeriesRule("mixed_tools", "WARN", "a PP run and its baseline measured with different tools", NONE, _tools),
    SeriesRule("engine_flags", "WARN", "engine flags that matter under PP differ from the baseline's", NONE, _engine),
    SeriesRule("peak_at_edge", "WARN", "the best point of a sweep is its last one", NONE, _edge),
)


def ttft_ignores_isl(runs: list[Run], limit: float) -> Iterator[tuple[Run, Seen]]:
    """TTFT that does not grow with the prompt is not the time of its prefill; over runs that differ in ISL alone."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        if run.number("ttft_p50_ms") is not None:
            groups.setdefault(tuple(str(run.row[n]) for n in IDENTITY if n != "isl"), []).append(run)
    for group in groups.values():
        low, high = min(group, key=lambda r: int(r.row["isl"])), max(group, key=lambda r: int(r.row["isl"]))
        a, b = low.number("ttft_p50_ms") or 0.0, high.number("ttft_p50_ms") or 0.0
        if int(high.row["isl"]) >= 2 * int(low.row["isl"]) and a > 0 and b / a < limit:
            yield (
                high,
                Seen(b / a, f"TTFT is {b / a:.2f} times that at ISL {low.row['isl']}, a prompt less than half as long"),
            )


def no_microbatching(runs: list[Run], limit: float) -> Iterator[tuple[Run, Seen]]:
    """PP whose stages run one after another: no faster than one stage's GPUs alone.

    That needs a TP=k/PP=1 run on k GPUs; without one it is not assessable, which is said once.
    """
    small = {}
    for run in runs:
        if int(run.row["pp"]) == 1 and run.number("output_tokens_per_s") is not None:
            small[_machine(run, int(run.row["tp"]))] = run
    told: set[str] = set()
    for run in runs:
        x, pp, k = run.number("output_tokens_per_s"), int(run.row["pp"]), int(run.row["tp"])
        if pp == 1 or x is None:
            continue
        alone = small.get(_machine(run, k))
        model = f"{run.row['model']} {run.row['backend']}"
        if alone is None:
            if model not in told:
                told.add(model)
                yield run, Seen(None, "not assessable: no TP=k/PP=1 run on k GPUs", verdict="INFO")
        elif (ratio := x / (alone.number("output_tokens_per_s") or x)) < limit:
            yield (
                run,
                Seen(
                    ratio,
                    f"is {ratio:.2f} times as fast as TP{k}/PP1 on {k} GPUs: the stages seem to run one after another",
                ),
            )


def _machine(run: Run, gpus: int) -> tuple[str, ...]:
    same = ("campaign", "model", "precision", "backend", "backend_version", "system", "isl", "osl", "concurrency")
    return (*(str(run.row[n]) for n in same), str(run.row["tp"]), str(gpus))


def same_file(runs: list[Run], _: float) -> Iterator[tuple[Run, Seen]]:
    """One run under two names: a copied folder, whose degrees are then not those it was measured with."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((str(run.row["source_sha256"]), int(run.row["source_row"])), []).append(run)
    for group in groups.values():
        for run in group if len({r.row["source_file"] for r in group}) > 1 else ():
            other = next(_place(r) for r in group if r.row["source_file"] != run.row["source_file"])
            yield run, Seen(None, f"has the very content of {other}; which of them was measured is not known")


# Over the whole campaign, since their runs differ in what makes a series.
CAMPAIGN_RULES: tuple[SeriesRule, ...] = (
    SeriesRule("same_content", "REJECT", "one result file under two names", NONE, same_file),
    SeriesRule("ttft_ignores_isl", "WARN", "TTFT at a long prompt over that at a short one", 1.1, ttft_ignores_isl),
    SeriesRule("no_microbatching", "WARN", "PP throughput over that of one stage's GPUs alone", 1.1, no_microbatching),
)
