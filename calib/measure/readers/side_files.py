"""What the files of one aiperf run say about the server: cross-checks of ``campaign.toml``, never its replacement.

aiperf records neither engine, nor version, nor parallelism. Three kinds of files in a run's folder tell something of them:
side-cars that the user had it write (``artifacts.user_files``), the scrape of the server's ``/metrics``
(`calib.measure.readers.server_metrics`), and the GPU telemetry, which lists every GPU of a node, used or not.

What cannot be understood gives no hint and never an exception. A strange degree is listed in the fact ``odd_labels``, a
file that could not be read in ``unread``: a check that was not made must not look like one that was passed.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from calib.errors import CampaignError
from calib.measure.readers.aiperf.summary import is_summary
from calib.measure.readers.content import read_content
from calib.measure.readers.hints import MOST, Found, Hint, gpu_system, hint_text, shown, whole
from calib.measure.readers.quantities import dig
from calib.measure.readers.server_metrics import NOT_JSON, is_scrape, read_scrape, value_of

NO_SIDE_CARS = frozenset({"inputs.json", "outputs.json", "run_config.json", "phase_manifest.json"})
SIZE_LIMIT = 64 * 2**20
SIDECAR_LIMIT = 2**20
TELEMETRY_LINES = 10_000
LINE_LIMIT = 64 * 2**10
LARGEST_DEGREE = {"tp": 64, "pp": 64, "dp": 1024}  # a folder named pp512 is about prompts
SUFFIXES = (".json", ".json.gz", ".json.zst")

_COUNTS = {
    **{c: c for c in ("tp", "pp", "dp", "gpus", "replicas", "isl", "osl")},
    **{f"{c}_size": c for c in ("tp", "pp", "dp")},
    "tensor_parallel_size": "tp", "pipeline_parallel_size": "pp", "data_parallel_size": "dp", "gpu_count": "gpus",
}  # fmt: skip
_FLAGS = {
    **{f: f for f in ("max_num_seqs", "chunked_prefill", "async_scheduling", "executor", "cuda_graph_sizes", "dummy_weights")},
    "enable_chunked_prefill": "chunked_prefill", "distributed_executor_backend": "executor",
}  # fmt: skip
_BACKENDS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "tensorrtllm": "trtllm"}
_DEGREES = re.compile(r"(?<![a-z0-9])((?:(?:tp|pp|dp)[-=]?[0-9]{1,9})+)(?![a-z0-9])")
_HERE = re.compile(r"localhost|127\.[0-9]|::1\b|pynvml|amdsmi", re.IGNORECASE)


def read_hints(folder: Path, *, root: Path, run: str = "") -> tuple[list[Hint], dict[str, object]]:
    """Hints about the deployment of the run in ``folder``, and facts for the screening rules.

    Parameters
    ----------
    folder
        Where the run's summary lies, at or below ``root``; folders below it are not searched.
    root
        What paths are stored relative to.
    run
        File name of the run's summary. Needed where several runs share a folder (``--profile-export-prefix``), since
        metrics and telemetry are then told apart by their names; without it they give no hints there.

    Returns
    -------
    hints : list of Hint
        In the order side-cars, scrape, telemetry.
    facts : dict
        Of these what the files give: ``server_backend``; ``server_generation_tokens`` [tok] and ``prefix_cache_hit_rate``
        (0..1) over all endpoints; ``server_endpoints``, the last two for each of several; ``gpu_names``; ``engine``, the
        flags of a side-car; ``odd_labels`` and ``unread``, tuples of text.
    """
    names = _names(folder)
    found, unread = Found(), Found()
    summaries, scrapes = _documents(folder, names, root, unread)
    chosen = run if run in summaries else next(iter(summaries)) if len(summaries) == 1 else ""
    mine = names if len(summaries) <= 1 else _named_after(chosen)
    listing = [summaries[chosen]] if chosen else list(summaries.values())
    for path in _sidecars(folder, names, listing):
        found.take(_sidecar(_open(path, root, unread, limit=SIDECAR_LIMIT), _relative(path, root)))
    for name, scrape in scrapes.items():
        if name in mine:
            found.take(scrape)
    summary = summaries.get(chosen, {})
    urls = dig(summary, "input_config", "endpoint", "urls")
    found.take(_telemetry_of_summary(summary, _relative(folder / chosen, root), urls))
    for name in names:
        if name.endswith(".jsonl") and "gpu_telemetry" in name and name in mine:
            found.take(_telemetry_of_records(folder / name, _relative(folder / name, root), urls))
    said = {"gpu_names": sorted(found.gpu_names), "odd_labels": found.odd, "unread": unread.odd}
    return list(found.hints), found.facts | {k: tuple(dict.fromkeys(v)) for k, v in said.items() if v}


def path_hints(relative_path: str) -> list[Hint]:
    """Degrees in the names of a run's folders and of its summary (``qwen3-8b-tp4pp2``), for cross-checks only.

    The deepest name that has a degree counts; one that has two of a kind (``tp4-vs-tp8``) says nothing.
    """
    hints: dict[str, Hint] = {}
    for name in PurePosixPath(relative_path).parts:
        degrees: dict[str, set[int]] = defaultdict(set)
        for group in _DEGREES.findall(name.lower().replace("_", "-")):
            for column, digits in re.findall(r"([a-z]+)[-=]?([0-9]+)", group):
                degrees[column].add(int(digits))
        for column, values in degrees.items():
            hints.pop(column, None)
            if len(values) == 1 and 1 <= (value := values.pop()) <= LARGEST_DEGREE[column]:
                hints[column] = Hint(column, value, relative_path, f"name {name}")
    return list(hints.values())


def _names(folder: Path) -> list[str]:
    try:
        return sorted(n for n in os.listdir(folder) if not n.startswith("."))
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return []


def _relative(path: Path, root: Path) -> str:
    return PurePosixPath(path.relative_to(root)).as_posix()


def _open(path: Path, root: Path, unread: Found, *, limit: int) -> dict[str, msgspec.Raw]:
    """The keys of the JSON object in ``path``, their values not decoded yet; empty where it is none."""
    unread.file = _relative(path, root)
    try:
        content, _ = read_content(path, limit=limit)
        return msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except CampaignError as error:
        unread.strange("", error.problem)
    except (OSError, *NOT_JSON):
        unread.strange("", "is not a JSON object")
    return {}


def _documents(
    folder: Path, names: Iterable[str], root: Path, unread: Found
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Found]]:
    """Summaries (what is needed of them) and scrapes by file name, known by their content."""
    summaries: dict[str, Mapping[str, Any]] = {}
    scrapes: dict[str, Found] = {}
    for name in names:
        if not name.endswith(SUFFIXES) or name in NO_SIDE_CARS or "timeslices" in name:
            continue
        document = _open(folder / name, root, unread, limit=SIZE_LIMIT)
        config = value_of(document, "input_config")
        if is_summary({**document, "input_config": config}):
            summaries[name] = {"input_config": config, "telemetry_data": value_of(document, "telemetry_data")}
        elif is_scrape(document):
            scrapes[name] = read_scrape(document, file=_relative(folder / name, root))
    return summaries, scrapes


def _named_after(summary: str) -> frozenset[str]:
    """Names of the files that belong to ``summary`` where a folder holds several."""
    stem = summary.removesuffix(".json")
    if stem == "profile_export_aiperf":
        return frozenset({"server_metrics_export.json", "gpu_telemetry_export.jsonl"})
    return frozenset({f"{stem}_server_metrics.json", f"{stem}_gpu_telemetry.jsonl"}) if stem else frozenset()


def _sidecars(folder: Path, names: list[str], summaries: Iterable[Mapping[str, Any]]) -> Iterator[Path]:
    """``deployment.json`` and the JSON files that aiperf wrote for the user, inside ``folder``."""
    wanted = {"deployment.json": None}
    for summary in summaries:
        listed = dig(summary, "input_config", "artifacts", "user_files")
        for entry in listed[:MOST] if isinstance(listed, list) else ():
            path = hint_text(dig(entry, "path")) or ""
            pattern = re.sub(r"\{\{.*?\}\}", "*", path.replace("[", "[[]"))  # a template that aiperf has filled in
            wanted |= dict.fromkeys(fnmatch.filter(names, pattern) if "{{" in path else [path])
    for name in wanted:
        parts = PurePosixPath(name).parts
        inside = not name.startswith("/") and ".." not in parts and not NO_SIDE_CARS.intersection(parts)
        if inside and name.endswith(".json") and os.path.isfile(folder / name):
            yield folder / name


def _sidecar(document: Mapping[str, msgspec.Raw], file: str) -> Found:
    """Keys of the file itself and of its objects ``deployment`` and ``engine``."""
    found = Found(file)
    top = {name: value_of(document, name) for name in itertools.islice(document, MOST)}
    sections = {"": top, **{f"{s}.": top[s] for s in ("deployment", "engine") if isinstance(top.get(s), dict)}}
    flags: dict[str, object] = {}
    for prefix, section in sections.items():
        for name, value in section.items():
            plain = name.lower().replace("-", "_")
            if plain in _FLAGS and (flag := _flag(value)) is not None:
                flags[_FLAGS[plain]] = flag
            elif value is not None:
                _state(found, plain, value, prefix + name)
    if flags:
        found.facts["engine"] = flags
    return found


def _state(found: Found, name: str, value: object, key: str) -> None:
    """One key of a side-car; what is not known is not for calib."""
    if name in _COUNTS:
        found.count(_COUNTS[name], value, key)
    elif name in ("backend_version", "model", "precision"):
        found.word(name, value, key)
    elif name == "backend":
        if backend := _BACKENDS.get(re.sub(r"[^a-z]", "", (hint_text(value) or "").lower())):
            found.add("backend", backend, key)
        else:
            found.strange(key, f"= {shown(value)} is not a known engine")
    elif name == "gpu" and (gpu := hint_text(value)):
        found.gpu(gpu, key)
    elif name == "system":
        written = hint_text(value) or ""
        if system := gpu_system(written) or (written if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", written) else None):
            found.add("system", system, key)
        else:
            found.strange(key, f"= {shown(value)} is not a known system")


def _flag(value: object) -> object:
    """An engine flag that can be compared: true or false, a number, a word, or a list of sizes."""
    if isinstance(value, list):
        return tuple(value) if len(value) <= MOST and all(isinstance(v, int) and whole(v) for v in value) else None
    return value if isinstance(value, bool | int | float) else hint_text(value)


def _telemetry_of_summary(summary: Mapping[str, Any], file: str, urls: object) -> Found:
    gpus: dict[str, object] = {}
    endpoints = dig(summary, "telemetry_data", "endpoints")
    hosts = endpoints if isinstance(endpoints, dict) else {}
    for host, endpoint in hosts.items():
        listed = dig(endpoint, "gpus")
        for place, gpu in listed.items() if isinstance(listed, dict) else ():
            gpus[hint_text(dig(gpu, "gpu_uuid")) or f"{host} {place}"] = dig(gpu, "gpu_name")
    return _gpus(Found(file), gpus, "telemetry_data.endpoints", hosts, urls)


def _telemetry_of_records(path: Path, file: str, urls: object) -> Found:
    """The GPUs in the first lines; they are counted only where those are all, since another node may begin later."""
    gpus: dict[str, object] = {}
    hosts: set[str] = set()
    lines = 0
    for line in _lines(path):
        lines += 1
        try:
            row = msgspec.json.decode(line)
        except NOT_JSON:
            continue
        if isinstance(dig(row, "telemetry_data"), dict) and len(gpus) < MOST:
            host = hint_text(dig(row, "telemetry_source_url")) or ""
            hosts.add(host)
            gpus[hint_text(dig(row, "gpu_uuid")) or f"{host} {shown(dig(row, 'gpu_index'))}"] = dig(
                row, "gpu_model_name"
            )
    found = _gpus(Found(file), gpus, "gpu_model_name", hosts, urls)
    if lines >= TELEMETRY_LINES or len(gpus) >= MOST:
        found.hints = {hint: None for hint in found.hints if hint.field != "gpus"}
    return found


def _lines(path: Path) -> Iterator[bytes]:
    try:
        if path.is_file():  # opening a pipe would wait for ever
            with path.open("rb") as stream:
                yield from itertools.islice(iter(lambda: stream.readline(LINE_LIMIT), b""), TELEMETRY_LINES)
    except OSError:
        return


def _gpus(found: Found, gpus: Mapping[str, object], key: str, hosts: Collection[str], urls: object) -> Found:
    """Names, system and number of the GPUs, unless they are those of the machine that sent the requests."""
    found.gpu_names |= {name for value in itertools.islice(gpus.values(), MOST) if (name := hint_text(value))}
    servers = [u for u in urls if isinstance(u, str)] if isinstance(urls, list) else []
    if servers and any(map(_HERE.search, hosts)) and not any(map(_HERE.search, servers)):
        found.strange(key, "lists GPUs of the machine that sent the requests, and the server is another")
        return found
    systems = {gpu_system(name) for name in found.gpu_names}
    if len(systems) == 1 and (system := systems.pop()):
        found.add("system", system, key)
    if gpus:
        found.add("gpus", len(gpus), key, "at_least")
    return found
