"""The text of a drafted ``campaign.toml``: every string escaped, every comment on one line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from calib.errors import printable
from calib.measure.draft.entries import RunsEntry, TableFile
from calib.names import BACKENDS

_WORDS = {
    "model": "the model, by the one name used in this campaign",
    "precision": "bf16 or fp8, for example",
    "backend": f"the engine: {', '.join(BACKENDS)}",
    "backend_version": "the engine's version, 0.19.1 for example",
    "system": "the GPU system, h200_sxm for example",
    "gpus": "GPUs of one replica",
    "tp": "tensor-parallel degree",
    "pp": "pipeline stages; an unknown pp is never taken for 1",
    "dp": "data-parallel degree",
    "replicas": "copies of the deployment behind one address",
    "isl": "input tokens asked for a request",
    "osl": "output tokens asked for a request",
}
_NUMBERS = ("gpus", "tp", "pp", "dp", "replicas", "isl", "osl")


@dataclass(frozen=True)
class Line:
    """One field: where it stands (``defaults``, an entry's folder, or ``the results``), its value and its source.

    ``value`` is None where it has to be stated; ``source`` then is what comes near it.
    """

    field: str
    place: str
    value: object
    source: str

    @property
    def known(self) -> bool:
        """Whether something is known of it."""
        return self.value is not None

    @property
    def words(self) -> str:
        """What to state, in words."""
        return _WORDS[self.field] + (f" ({self.source})" if self.source else "")


def campaign_text(
    *,
    name: str,
    lines: tuple[Line, ...],
    entries: tuple[RunsEntry, ...],
    tables: tuple[TableFile, ...],
    aliases: Mapping[str, str],
    balance: str | None,
) -> str:
    """The whole file; it parses whatever names the results bear."""
    runs = [r for e in entries for r in e.runs] + [r for t in tables for r in t.runs]
    tools = sorted(
        {" ".join(str(r.stated[k]) for k in ("tool", "tool_version") if r.stated.get(k)) for r in runs} - {""}
    )
    loads = sorted({c for r in runs if isinstance(c := r.stated.get("concurrency"), int)})
    models = _values(lines, "model") or ["models not stated"]
    backends = _values(lines, "backend")
    where = " on ".join(["/".join(map(str, backends)) or "an engine not stated", *map(str, _values(lines, "system"))])
    source = f"results of {', '.join(tools)}" if tools else "a table of figures"
    out = [
        "# Written by `calib init`: what it inferred says from where, what it could not is a commented line to fill in.",
        "# A file, a side-car or an entry that says something else than this file is an error, never a silent choice.",
        "format_version = 1",
        f"name = {toml(name)}",
        f"title = {toml(', '.join(map(str, models[:5])) + ', ' + where)}",
        f"source = {toml(source)}  # state this: who measured it, and where the raw files are",
        'matching = "peak"  # each side at its best concurrency; "matched": the same concurrency on both sides',
    ]
    if loads:
        out.append(
            f"# sweep = [{loads[0]}, {loads[-1]}]  # optional: lowest and highest concurrency, held against the runs"
        )
    if aliases:
        pairs = ", ".join(f"{toml(k)} = {toml(v)}" for k, v in aliases.items())
        out.append(f"aliases = {{ {pairs} }}  # spellings of one model")
    out += ["", "[defaults]  # holds for every run", *_assignments(lines, "defaults")]
    for entry in entries:
        out += ["", "[[runs]]", f"folder = {toml(entry.folder)}  # {_count(len(entry.runs), 'run')}"]
        out += _assignments(lines, entry.folder)
    for table in tables:
        out += ["", *_table(table)]
    out += ["", *_balance(balance, backends)]
    return "\n".join(out) + "\n"


def toml(value: object) -> str:
    """A value as TOML. A basic string takes JSON's escapes, and DEL must be one."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def one_line(text: str) -> str:
    """Text that cannot leave its comment."""
    return " ".join(printable(text).split())


def _assignments(lines: Iterable[Line], place: str) -> list[str]:
    out = []
    for line in lines:
        if line.place != place:
            continue
        if line.known:
            out.append(f"{line.field} = {toml(line.value)}  # from {one_line(line.source)}")
        else:
            blank = "..." if line.field in _NUMBERS else '"..."'
            out.append(f"# {line.field} = {blank}  # state this: {one_line(line.words)}")
    return out


def _table(table: TableFile) -> list[str]:
    if table.problem:
        return [
            f"# {one_line(table.file)} {one_line(table.problem)}. If it holds measurements, state this: what its columns are.",
            "# [[tables]]",
            f"# file = {one_line(toml(table.file))}",
            '# columns = { "its name" = "output_tokens_per_s" }',
            f"# ignore = []  # what is no figure of: {one_line(', '.join(table.unknown))}",
        ]
    out = ["[[tables]]", f"file = {toml(table.file)}  # {_count(len(table.runs), 'run')}"]
    if table.unknown:
        out += [
            '# columns = { "its name" = "run table column" }  # for what is a figure of the run table by another name',
            f"ignore = {toml(list(table.unknown))}",
        ]
    return out


def _balance(file: str | None, backends: list[object]) -> list[str]:
    rule = "vllm" if backends == ["vllm"] else "even"
    split = f'partition = "{rule}"  # how layers are split over stages'
    if not backends:  # nothing is guessed, and the balance factors hang on it
        split = (
            '# partition = "..."  # state this: how layers are split over stages, "vllm" for vLLM, "even" if left out'
        )
    lines = [f"file = {toml(file or 'breakdowns.json')}", split]
    if file:
        return ["[balance]", *lines]
    say = "# Needed from `calib run` on; write the file with `calib breakdown FOLDER --out FOLDER/breakdowns.json`."
    return [say, "# [balance]", *(f"# {line}" for line in lines)]


def _values(lines: Iterable[Line], field: str) -> list[object]:
    found: list[object] = []
    for line in lines:
        if line.field == field and line.known:
            found += line.value if isinstance(line.value, list) else [line.value]
    return list(dict.fromkeys(found))


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
