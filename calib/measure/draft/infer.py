"""A first ``campaign.toml`` for a folder of results: what can be inferred, with its source, and what has to be stated.

Nothing is guessed. A degree is written where a name, a side-car or the server tells it; everything else stands as a
commented line that says what to state, and `calib ingest` names it until it is stated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from calib.errors import BreakdownError, CampaignError, OutputError, UsageError, printable
from calib.files import write_new
from calib.measure.campaign.config import CONFIG_NAME, parse_config
from calib.measure.campaign.topology import REQUIRED, plain_name
from calib.measure.draft.entries import FIELDS, NAMED, Claim, RunsEntry, Sighted, TableFile, agree, gpus_seen, look
from calib.measure.draft.text import Line, campaign_text
from calib.measure.readers.read_run import ReadRun
from calib.names import BACKENDS
from calib.notebook import LEFT, ROWS, html_block, html_table
from calib.pipeline import Breakdowns

AnyEntry = RunsEntry | TableFile
UNTOLD = ("backend", "backend_version", "system", "gpus", "isl", "osl")


@dataclass(frozen=True, repr=False)
class Draft:
    """A drafted ``campaign.toml``.

    Attributes
    ----------
    path : Path
        Where the file belongs, and is after `init_campaign`.
    text : str
        Its content.
    inferred, missing : tuple of Line
        What was found, each with its source; and what has to be stated before `calib ingest` accepts the campaign.
    remarks : tuple of str
        What else was noticed, one sentence each: sources that disagree, results that cannot be read.
    results : int
        How many runs were read.
    """

    path: Path
    text: str
    inferred: tuple[Line, ...]
    missing: tuple[Line, ...]
    remarks: tuple[str, ...]
    results: int

    def __repr__(self) -> str:
        return f"<Draft of {self.path.name}: {self.results} runs, {len(self.missing)} fields to state>"

    def _repr_html_(self) -> str:
        lines = (*self.missing, *self.inferred)
        columns = dict.fromkeys(("field", "value", "stands in", "how it is known"), LEFT)
        rows = [
            (x.field, "STATE THIS" if x.value is None else ", ".join(map(str, x.value)) if isinstance(x.value, list) else x.value,
             x.place, x.words if x.value is None else f"from {x.source}")
            for x in lines[:ROWS]
        ]  # fmt: skip
        return html_block(
            str(self.path.name), f"{self.results} runs were read; {len(self.missing)} fields have to be stated.",
            html_table(columns, rows, len(lines), "draft.missing, draft.inferred"),
            " ".join(f"{r}." for r in self.remarks[:5]),
        )  # fmt: skip


def init_campaign(folder: str | Path) -> Draft:
    """Write a commented ``campaign.toml`` into a folder of results; an existing one is never overwritten.

    Raises
    ------
    UsageError
        There is a ``campaign.toml`` already.
    CampaignError
        As `draft_campaign`.
    OutputError
        The folder cannot be written.
    """
    draft = draft_campaign(folder)
    try:
        written = write_new(draft.path, draft.text.encode())
    except OutputError as error:
        raise OutputError(error.problem, file=draft.path, remedy="make the folder writable, or copy it") from None
    if not written:
        raise _exists(draft.path)
    return draft


def draft_campaign(folder: str | Path) -> Draft:
    """What `init_campaign` would write, without writing it.

    Raises
    ------
    UsageError
        There is a ``campaign.toml`` already.
    CampaignError
        Not a folder, not readable, or without a result that calib can read.
    UnknownTopologyError
        A result file states a degree that is not a positive whole number.
    """
    folder = Path(folder)
    path = folder / CONFIG_NAME
    _check_folder(folder, path)
    seen = look(folder)
    if not (seen.entries or seen.tables):
        why = f" (the first of {len(seen.unreadable)} that it cannot: {seen.unreadable[0].source_file}, which " \
              f"{seen.unreadable[0].reason})" if seen.unreadable else ""  # fmt: skip
        raise CampaignError(
            f"holds no result that calib can read{why}", file=folder,
            remedy="give the folder that holds aiperf folders, result files or CSV tables",
        )  # fmt: skip
    balance, system, problem = _breakdowns(folder)
    resolved = _Resolver(seen, system)
    text = campaign_text(
        name=printable(folder.resolve().name).strip() or "campaign", lines=tuple(resolved.lines), entries=seen.entries,
        tables=seen.tables, aliases=resolved.aliases, balance=balance,
    )  # fmt: skip
    if any(t.runs for t in seen.tables) or seen.entries:
        parse_config(text.encode(), file=path)  # a draft that calib itself cannot read would be a fault of calib
    remarks = (*resolved.remarks, *seen.remarks, *_unread(seen), *([problem] if problem else []))
    runs = sum(len(e.runs) for e in seen.entries) + sum(len(t.runs) for t in seen.tables)
    return Draft(path, text, tuple(x for x in resolved.lines if x.known), tuple(x for x in resolved.lines if not x.known),
                 remarks, runs)  # fmt: skip


def _check_folder(folder: Path, path: Path) -> None:
    try:
        os.listdir(folder)
        taken = os.path.lexists(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise CampaignError(
            f"cannot be read as a folder ({reason})", file=folder, remedy="give the folder that holds the results"
        ) from None
    if taken:
        raise _exists(path)


def _exists(path: Path) -> UsageError:
    return UsageError("exists already and is not overwritten", file=path, remedy="edit it, or move it away first")


def _unread(seen: Sighted) -> list[str]:
    """Runs that could not be read: `calib ingest` lists them all."""
    shown = [f"{r.source_file} cannot be used: {r.reason}" for r in seen.unreadable[:5]]
    more = len(seen.unreadable) - len(shown)
    shown += [f"{more} more cannot be used; `calib ingest` lists them"] if more else []
    for table in seen.tables:
        if table.problem:
            shown.append(f"{table.file} is left out as it is: {table.problem}")
        elif table.unknown:
            shown.append(f"{table.file}: ignored are {', '.join(table.unknown)}; map what is a figure under columns")
    return shown


def _breakdowns(folder: Path) -> tuple[str | None, str | None, str]:
    """The usable breakdown file in the folder, if there is one, with its system; or why it is not usable."""
    problem = ""
    for path in sorted(folder.glob("*breakdown*.json")):
        try:
            return path.name, Breakdowns.load(path).provider.system, ""
        except BreakdownError as error:
            problem = str(error)
    return None, None, problem


class _Resolver:
    """Field by field: where its value stands, in ``[defaults]``, in an entry, or nowhere."""

    def __init__(self, seen: Sighted, system: str | None) -> None:
        self.system = system  # of the breakdowns, which a campaign's must be
        self.entries: tuple[AnyEntry, ...] = (*seen.entries, *(t for t in seen.tables if t.runs))
        self.claims = {(r.source_file, r.source_row): _claims(e, r) for e in self.entries for r in e.runs}
        self.lines: list[Line] = []
        self.remarks: list[str] = []
        self.aliases = _aliases(c for claims in self.claims.values() for c in claims if c.field == "model")
        for field in FIELDS:
            self._resolve(field)
        if not self.claims:  # tables that cannot be read yet: what no such table can tell is known already
            self.lines += [Line(f, "defaults", None, "") for f in UNTOLD]

    def _about(self, run: ReadRun, field: str) -> list[Claim]:
        said = [c for c in self.claims[run.source_file, run.source_row] if c.field == field]
        if field == "gpus" and not said and (derived := self._gpus(run)):
            said.append(derived)
        return said

    def _gpus(self, run: ReadRun) -> Claim | None:
        """GPUs of one replica where the product of the degrees is sure to be all of them."""
        values = {f: self._value(run, f) for f in ("tp", "pp", "dp", "replicas")}
        tp, pp, dp, seen = values["tp"], values["pp"], values["dp"], gpus_seen(run)
        if not (isinstance(tp, int) and isinstance(pp, int)):
            return None
        if isinstance(dp, int):
            return Claim("gpus", tp * pp * dp, "tp*pp*dp", False)
        if seen == tp * pp:
            return Claim("gpus", tp * pp, "tp*pp, and the telemetry saw as many", False)
        return None

    def _value(self, run: ReadRun, field: str) -> object:
        """What all sources of a run say; what the file or a side-car states where others differ; None where unknown."""
        said = self._about(run, field) if field != "gpus" else []
        said = [c for c in said if c.states] or (said if agree(said) else [])
        return said[0].value if said else None

    def _resolve(self, field: str) -> None:
        runs = [(e, r) for e in self.entries for r in e.runs]
        told = {id(r): self._about(r, field) for _, r in runs}
        for said in told.values():
            if not agree(said):
                text = " and ".join(dict.fromkeys(f"{c.value!r} ({c.where})" for c in said))
                self.remarks.append(f"sources disagree about {field}: {text}; calib ingest will say where")
                break
        open_ = [(e, r) for e, r in runs if not any(c.states for c in told[id(r)])]
        stated = [c for _, r in runs for c in told[id(r)] if c.states]
        if stated:
            self._found(field, stated, "the results")
        if not open_ or not (field in REQUIRED or any(told[id(r)] for _, r in open_)):
            return
        claims = [told[id(r)] for _, r in open_]
        flat = [c for said in claims for c in said]
        if all(claims) and agree([*flat, *stated]):
            self._found(field, flat, "defaults")
            return
        self._by_entry(field, open_, told)

    def _by_entry(self, field: str, open_: list[tuple[AnyEntry, ReadRun]], told: dict[int, list[Claim]]) -> None:
        """A line an entry; one line in ``[defaults]`` where nothing is known of any, or a table has no place for it."""
        of_table = any(isinstance(e, TableFile) for e, _ in open_)
        nowhere = not any(told[id(r)] for _, r in open_) and {e for e, _ in open_} == set(self.entries)
        if field in NAMED and len(self.entries) > 1:  # one degree for all would be a trap
            nowhere = False
        if of_table or nowhere:
            if field in REQUIRED:
                self.lines.append(Line(field, "defaults", None, self._near(field, [r for _, r in open_])))
            return
        for entry in dict.fromkeys(e for e, _ in open_ if isinstance(e, RunsEntry)):
            own = [r for e, r in open_ if e is entry]
            if all(told[id(r)] for r in own) and agree(c for r in entry.runs for c in told[id(r)]):
                self._found(field, [c for r in own for c in told[id(r)]], entry.folder)
            elif field in REQUIRED:
                self.lines.append(Line(field, entry.folder, None, self._near(field, own)))

    def _near(self, field: str, runs: list[ReadRun]) -> str:
        """What the results say that comes near the field, for whoever has to state it."""
        if field == "system" and self.system:
            return f"the breakdowns are those of {self.system}"
        if field == "gpus":
            products = {(self._value(r, "tp"), self._value(r, "pp")) for r in runs}
            sizes = {tp * pp for tp, pp in products if isinstance(tp, int) and isinstance(pp, int)}
            known = all(isinstance(x, int) for pair in products for x in pair)
            say = (
                f"tp*pp is {sizes.pop()} in every run, to be multiplied by"
                if known and len(sizes) == 1
                else "tp*pp times"
            )
            return f"{say} the data-parallel degree"
        fact = {"isl": "measured_isl", "osl": "measured_osl"}.get(field, "")
        seen = [v for r in runs if isinstance(v := r.facts.get(fact), float | int)]
        return f"the requests had {sum(seen) / len(seen):.1f} on average" if seen else ""

    def _found(self, field: str, claims: list[Claim], place: str) -> None:
        values = list(dict.fromkeys(self.aliases.get(str(c.value), c.value) for c in claims))
        values.sort(key=lambda v: (isinstance(v, str), v))
        sources = list(dict.fromkeys(c.where for c in claims))
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        shown = values[0] if len(values) == 1 or place != "the results" else values
        if field == "backend" and place != "the results" and shown not in BACKENDS:
            self.lines.append(Line(field, place, None, f"the server says {shown!r}, which is not a known engine"))
            return
        self.lines.append(Line(field, place, shown, f"{sources[0]}{more}"))


def _claims(entry: AnyEntry, run: ReadRun) -> tuple[Claim, ...]:
    if isinstance(entry, RunsEntry):
        return entry.claims(run)
    return tuple(Claim(f, run.stated[f], entry.file, True) for f in FIELDS if run.stated.get(f) is not None)


def _aliases(claims: Iterable[Claim]) -> dict[str, str]:
    """Spellings of one model -> the fullest of them."""
    names: dict[object, set[str]] = {}
    for claim in claims:
        if claim.states:
            names.setdefault(plain_name(claim.value, "model"), set()).add(str(claim.value))
    found: dict[str, str] = {}
    for spellings in names.values():
        best = max(spellings, key=lambda n: ("/" in n and not n.startswith(("/", ".")), len(n), n))
        found |= {n: best for n in sorted(spellings) if n != best}
    return found
