"""aiperf runs, sweeps and trials of every version from 0.1 to 0.14, recognised by content and not by name.

`read_runs` gives one `ReadRun` per cell, with its trials merged, and one `UnreadableRun` for everything that should be a
run and is not: a run of which no request succeeded, one that was killed or did not start, a cell of a sweep that is
missing, a second copy, what an earlier run left in the folder. How one summary is read says `summary`, what is
taken from the per-request file `records` and `steady`, what makes two summaries one cell `cells`,
which cells are missing `sweeps`, and how trials become one run `trials`.

A run whose per-request file is damaged before its last line, or is of another run than the summary beside it, is not
read: which of the two files holds is then not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from calib.errors import CampaignError
from calib.measure.readers.aiperf.cells import Cell, cell_parameters, split_copies, split_leftovers, stated_parameters
from calib.measure.readers.aiperf.request_records import RecordSummary, read_records
from calib.measure.readers.aiperf.stream import BadLineError
from calib.measure.readers.aiperf.summary import parse_summary
from calib.measure.readers.aiperf.sweeps import missing_cells
from calib.measure.readers.aiperf.tree import Document, RunFolder, Tree, scan
from calib.measure.readers.aiperf.trials import merge_trials
from calib.measure.readers.read_run import ReadRun, UnreadableRun

MARKER_SINCE = Version("0.13")
LOG_TAIL = 2**16


def read_runs(folder: Path, *, root: Path) -> list[ReadRun | UnreadableRun]:
    """Every aiperf run below ``folder``, trials of a cell as one; paths are stored relative to ``root``.

    Returns
    -------
    list of ReadRun and UnreadableRun
        Sorted by file. ``stated`` holds columns of the run table. ``facts`` holds what is known of these, and nothing
        for what is not:

        * state: ``cancelled``, ``incomplete``, ``cut_last_line``, ``ready_marker``, ``stale`` (reason), ``benchmark_id``,
          ``start_time`` (naive local time)
        * load: ``load_type``, ``rate`` [requests/s], ``profiling_phases``, ``urls``, ``requested_requests``,
          ``grace_period_s``, ``duration_limited``, ``warmup``, ``streaming``, ``ignore_eos``, ``random_prompts``
        * means over requests: ``measured_isl``, ``measured_osl`` [tokens], ``inter_chunk_ms``, ``inter_token_ms``,
          ``chunks_received``, ``usage_diff_pct`` [%]; over time: ``effective_concurrency``
        * counts: ``osl_mismatch_count``, ``usage_completion_count`` [requests], ``trials``
        * percentiles: ``client_delay_p99_ms``, ``ttft_p99_ms``, ``request_latency_p50_ms``
        * throughput [tok/s]: ``tool_output_tokens_per_s``, ``throughput_method``, ``throughput_note``,
          ``steady_output_tokens_per_s`` and ``steady_rel_error`` (both None with ``steady_note`` where there is a
          per-request file that does not give them)
        * files: ``records_file``, ``records_sha256``, and of merged trials ``trial_files``, pairs of path and digest
    """
    tree = scan(folder, root)
    found: list[ReadRun | UnreadableRun] = list(tree.problems)
    cells: list[Cell] = []
    failed: dict[Path, Mapping[str, object]] = {}
    for entry in tree.folders.values():
        for summary in entry.summaries:
            cell = _read_cell(entry, summary, root)
            if isinstance(cell, Cell):
                cells.append(cell)
            else:
                found.append(cell)
                failed[entry.path] = stated_parameters(summary.content)
        if reports := _without_summary(entry, tree, root):
            found += reports
            failed[entry.path] = cell_parameters(entry)
    cells, copies = split_copies(cells)
    cells, left, stale = split_leftovers(cells, tree)
    cells = [_with_facts(c, stale=stale[c.run.source_file]) if c.run.source_file in stale else c for c in cells]
    found += [*copies, *left, *missing_cells(cells, failed, tree, root), *merge_trials(cells)]
    if not found:
        name = folder.relative_to(root).as_posix()
        found.append(UnreadableRun(name, 0, "holds no aiperf summary: the run failed, or it is another tool's"))
    return sorted(found, key=lambda r: (r.source_file, r.source_row, isinstance(r, UnreadableRun) and r.reason))


def _read_cell(folder: RunFolder, summary: Document, root: Path) -> Cell | UnreadableRun:
    file = summary.path.relative_to(root).as_posix()
    path = folder.records_of(summary.path)
    records = _read_records(path, root) if path else None
    if isinstance(records, UnreadableRun):
        return records
    content = dict(summary.content)
    run = parse_summary(content, file=file, digest=summary.digest, records=records)
    if isinstance(run, UnreadableRun):
        return run
    cell = Cell(summary.path.parent, run, content, records, folder.config)
    if problem := _of_another_run(cell, folder):
        return UnreadableRun(file, 0, problem)
    facts: dict[str, object] = {}
    if path:
        facts["records_file"] = path.relative_to(root).as_posix()
    if (ready := _ready(folder, run)) is not None:
        facts["ready_marker"] = ready
    return _with_facts(cell, **facts)


def _read_records(path: Path, root: Path) -> RecordSummary | UnreadableRun:
    try:
        return read_records(path)
    except CampaignError as error:
        line = error.line if isinstance(error, BadLineError) else 0
        return UnreadableRun(path.relative_to(root).as_posix(), line, f"{error.problem}; {error.remedy}")


def _with_facts(cell: Cell, **facts: object) -> Cell:
    return replace(cell, run=replace(cell.run, facts={**cell.run.facts, **facts}))


def _of_another_run(cell: Cell, folder: RunFolder) -> str | None:
    """Why the files of the folder are not of one run: aiperf overwrites a folder that is used again file by file."""
    config_id = (folder.config or {}).get("benchmark_id")
    if config_id and cell.benchmark and str(config_id) != cell.benchmark:
        return f"is of run {cell.benchmark} and run_config.json beside it of {config_id}: the folder was used again"
    if cell.run.facts["cancelled"] or cell.run.facts["incomplete"]:
        return None  # what was in flight may be in one file and not in the other; the run is set aside anyway
    completed = cell.run.stated.get("completed_requests")
    if cell.records and not cell.records.cut_last_line and completed != cell.records.completed:
        return (
            f"counts {completed} completed requests and the per-request file beside it {cell.records.completed}: "
            "they are of two runs"
        )
    return None


def _ready(folder: RunFolder, run: ReadRun) -> bool | None:
    """Whether the marker that is written last is there; None for a version that writes none.

    No key of the summary tells whether a version writes it, so this is the one place that looks at the version.
    """
    if folder.ready is not None:
        return folder.ready
    try:
        return False if Version(str(run.stated.get("tool_version", "0"))) >= MARKER_SINCE else None
    except InvalidVersion:
        return None


def _without_summary(folder: RunFolder, tree: Tree, root: Path) -> list[UnreadableRun]:
    """What is there of runs that wrote no summary, and why they did not."""
    of_summaries = {folder.records_of(s.path) for s in folder.summaries}
    alone = [path for path in folder.records if path not in of_summaries]
    prefix = _cell_words(folder)
    reports = [_killed_or_failed(path, prefix, root) for path in alone]
    if reports or folder.summaries:
        return reports
    above = any(p != folder.path and p.is_relative_to(folder.path) for p in tree.folders)
    if folder.config is None and above:
        return []  # the log of a sweep stands above its cells
    shown = folder.path.relative_to(root).as_posix()
    log = _last_error(folder.path / "logs" / "aiperf.log") or _last_error(folder.path / "aiperf.log")
    said = f"; its log ends with: {log}" if log else ""
    return [UnreadableRun(shown, 0, f"{prefix}the run wrote neither a summary nor requests: it did not start{said}")]


def _killed_or_failed(path: Path, prefix: str, root: Path) -> UnreadableRun:
    records = _read_records(path, root)
    if isinstance(records, UnreadableRun):
        return records
    cut = "; its last line is cut" if records.cut_last_line else ""
    if records.completed:
        reason = (
            f"the run ended before its summary was written, after {records.completed} completed and "
            f"{records.failed} failed requests"
        )
    elif records.failed:
        reason = f"all {records.failed} requests failed ({records.describe_errors()})"
    else:
        reason = f"the run ended before its first request was done, after {records.warmup} of a warm-up"
    return UnreadableRun(path.relative_to(root).as_posix(), 0, f"{prefix}{reason}{cut}")


def _cell_words(folder: RunFolder) -> str:
    variation = (folder.config or {}).get("variation")
    values = variation.get("values") if isinstance(variation, dict) else None
    if not isinstance(values, dict) or not values:
        return ""
    return f"cell {', '.join(f'{name}={value}' for name, value in values.items())}: "


def _last_error(log: Path) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LOG_TAIL))
            lines = stream.read(LOG_TAIL).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    errors = [line for line in lines if " ERROR " in line or " CRITICAL " in line]
    return " ".join(errors[-1].rpartition(" - ")[2].split())[:200] if errors else ""
