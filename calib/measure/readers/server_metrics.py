"""The scrape of a server's ``/metrics`` that aiperf writes: engine, parallelism where it is exported, cache hits.

Counters have lost their ``_total`` there; their ``stats.total`` is that of the profiling phases (0.13: warm-up excluded). An
engine is known by the prefix of its metrics; those of a front end or a router (Dynamo, Triton) say nothing. A degree of 1
that SGLang's ranks suggest says nothing either, since by default only rank 0 exports, and a label of the draft model is
not one of the served model. Source: aiperf's documentation and files it wrote; the engines' lists of their metrics.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from calib.measure.readers.hints import MOST, Found, hint_text
from calib.measure.readers.quantities import dig

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)

_DEGREES = {"tensor": "tp", "pipeline": "pp", "data": "dp"}
_PRECISIONS = {"fp8": "fp8", "fp8_block_scales": "fp8", "nvfp4": "nvfp4"}
_ENGINE = re.compile(r"(vllm|sglang|trtllm):|(trtllm)_|(vllm|sglang)_(?:parallel|model)_config_info$")
_SIZE_LABEL = re.compile(r"(?:.*[._])?(tensor|pipeline|data)_parallel_size")
_OTHER_MODEL = re.compile(r"draft|specul|encoder|prefill|decode|kv_")  # also the other half of a split deployment
_CONFIG = re.compile(r"[:_](parallel|model)_config_info$")
# Cached units -> units asked for. TensorRT-LLM counts the blocks that it had, and those that it had not.
_CACHE = {
    "vllm:prefix_cache_hits": ("vllm:prefix_cache_queries",),
    "sglang:cached_tokens": ("sglang:prompt_tokens",),
    "trtllm_kv_cache_reused_blocks": ("trtllm_kv_cache_reused_blocks", "trtllm_kv_cache_missed_blocks"),
}
_GENERATED = ("vllm:generation_tokens", "sglang:generation_tokens", "trtllm_generation_tokens")
SERIES_LIMIT = 200_000  # metrics and series of one file; the largest servers export some ten thousand
_COUNTERS = frozenset({*_CACHE, *(n for names in _CACHE.values() for n in names), *_GENERATED})


@dataclass(frozen=True)
class _Series:
    metric: str
    backend: str
    place: int
    url: str
    labels: Mapping[str, Any]
    total: object

    @property
    def key(self) -> str:
        return f"metrics.{self.metric}.series[{self.place}]"


def is_scrape(document: Mapping[str, object]) -> bool:
    """Whether the keys of a document are those of aiperf's export of server metrics."""
    return {"metrics", "summary"} <= document.keys()


def value_of(document: Mapping[str, msgspec.Raw], name: str) -> Any:
    """The decoded value under ``name``; None where it is missing or cannot be decoded."""
    try:
        return msgspec.json.decode(document[name]) if name in document else None
    except NOT_JSON:
        return None


def read_scrape(document: Mapping[str, msgspec.Raw], *, file: str) -> Found:
    """Hints and facts of one scrape; metrics are decoded one at a time, since histograms are large."""
    found = Found(file)
    scrape = _Scrape()
    try:
        metrics = msgspec.json.decode(document["metrics"], type=dict[str, msgspec.Raw])
    except NOT_JSON:
        return found
    budget = SERIES_LIMIT
    for name in (n for n in metrics if len(n) <= MOST):
        listed = dig(value_of(metrics, name), "series")
        entries = listed if isinstance(listed, list) else []
        budget -= len(entries) + 1
        if budget < 0:
            found.strange("metrics", f"holds more than {SERIES_LIMIT} series")
            return found
        for series in _series(name, entries):
            scrape.see(series)
    for (_, backend), key in scrape.backends.items():
        found.add("backend", backend, key)
    _degrees(scrape, found)
    for series in scrape.configs:
        if series.metric.endswith("model_config_info"):
            _model(series, found)
    found.facts |= _facts(scrape)
    return found


def _series(metric: str, entries: list[object]) -> Iterator[_Series]:
    match = _ENGINE.match(metric)
    backend = next(filter(None, match.groups()), "") if match else ""
    for place, entry in enumerate(entries):
        url, labels = dig(entry, "endpoint_url"), dig(entry, "labels")
        yield _Series(
            metric=metric,
            backend=backend,
            place=place,
            url=url if isinstance(url, str) else "",
            labels=labels if isinstance(labels, dict) else {},
            total=dig(entry, "stats", "total"),
        )


@dataclass
class _Scrape:
    """What is kept of the series, by endpoint."""

    backends: dict[tuple[str, str], str] = field(default_factory=dict)
    engines: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    ranks: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    configs: list[_Series] = field(default_factory=list)
    totals: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    caching: set[str] = field(default_factory=set)

    def see(self, series: _Series) -> None:
        """Keep what one series says."""
        backend, labels = series.backend, series.labels
        if backend:
            self.backends.setdefault((series.url, backend), series.key)
        if backend == "vllm" and isinstance(engine := labels.get("engine"), str):
            self.engines[series.url].add(engine)
        for column in ("tp", "pp") if backend == "sglang" else ():
            rank = labels.get(f"{column}_rank")
            if isinstance(rank, str) and re.fullmatch(r"[0-9]{1,6}", rank):
                old = self.ranks.get((series.url, column), (0, ""))
                self.ranks[series.url, column] = max(old, (int(rank) + 1, f"{series.key}.labels.{column}_rank"))
        if series.metric == "vllm:cache_config_info":
            self.caching.add(str(labels.get("enable_prefix_caching")))
        is_config = _CONFIG.search(series.metric) or (backend and series.metric.endswith("_info"))
        if is_config and not _OTHER_MODEL.search(series.metric) and len(self.configs) < MOST:
            self.configs.append(series)
        counter = series.metric.removesuffix("_total").replace("trtllm:", "trtllm_")
        if counter in _COUNTERS:
            self.totals[counter][series.url] += _number(series.total)

    def total(self, counter: str, url: str | None = None) -> float:
        """Sum of a counter at one endpoint or at all; NaN where it is not known."""
        known = self.totals.get(counter, {})
        if url is not None:
            return known.get(url, math.nan)
        return sum(known.values()) if known else math.nan


def _number(total: object) -> float:
    good = isinstance(total, int | float) and not isinstance(total, bool) and 0 <= total < 1e18
    return float(total) if good and isinstance(total, int | float) else math.nan


def _degrees(scrape: _Scrape, found: Found) -> None:
    """Degrees from the labels of configurations, the number of engines, and the ranks that export."""
    seen: set[tuple[str, str, object]] = set()
    for series in scrape.configs:
        engines = len(scrape.engines.get(series.url, ()))
        for label, value in series.labels.items():
            match = _SIZE_LABEL.fullmatch(label)
            is_gpus = label == "gpu_count" and series.metric.endswith("parallel_config_info")
            column = _DEGREES[match[1]] if match and not _OTHER_MODEL.search(label) else "gpus" if is_gpus else ""
            # Engines of a dense model each run as if alone (dp = 1), while their labels show that there are several.
            if not column or not isinstance(value, str) or (column == "dp" and value == "1" and engines > 1):
                continue
            if (series.url, column, value) not in seen:
                found.count(column, value, f"{series.key}.labels.{label}")
            seen.add((series.url, column, value))
    for url, names in scrape.engines.items():
        if len(names) > 1:
            found.add("dp", len(names), f"metrics.*.series[*].labels.engine of {url}")
    for (_, column), (size, key) in scrape.ranks.items():
        if size > 1:
            found.add(column, size, key)


def _model(series: _Series, found: Found) -> None:
    """The run table's model is the name that was asked for: of two names the one it is served under, and no path."""
    key = f"{series.key}.labels"
    names = {
        label: hint_text(series.labels.get(label))
        for label in ("served_model_name", "model", "quantization", "gpu_type")
    }
    if names["served_model_name"]:
        found.add("model", names["served_model_name"], f"{key}.served_model_name")
    elif names["model"] and not names["model"].startswith(("/", ".", "~")):
        found.add("model", names["model"], f"{key}.model")
    if precision := _PRECISIONS.get((names["quantization"] or "").lower()):
        found.add("precision", precision, f"{key}.quantization")
    if names["gpu_type"]:
        found.gpu(names["gpu_type"], f"{key}.gpu_type")


def _facts(scrape: _Scrape) -> dict[str, object]:
    facts = _counted(scrape, None)
    urls = sorted({url for url, _ in scrape.backends})
    if len(urls) > 1:
        facts["server_endpoints"] = {url: _counted(scrape, url) for url in urls[:MOST]}
    backends = {backend for _, backend in scrape.backends}
    if len(backends) == 1:
        facts["server_backend"] = backends.pop()
    return facts


def _counted(scrape: _Scrape, url: str | None) -> dict[str, object]:
    """Tokens generated and the share of the prompt that was cached, at one endpoint or at all of them."""
    facts: dict[str, object] = {}
    tokens = [total for name in _GENERATED if not math.isnan(total := scrape.total(name, url))]
    if tokens:
        facts["server_generation_tokens"] = sum(tokens)
    pairs = [(scrape.total(hit, url), sum(scrape.total(n, url) for n in asked)) for hit, asked in _CACHE.items()]
    shares = [hits / asked for hits, asked in pairs if asked > 0 and 0 <= hits <= asked]
    if len(shares) == 1:
        facts["prefix_cache_hit_rate"] = shares[0]
    elif not shares and scrape.caching == {"False"}:
        facts["prefix_cache_hit_rate"] = 0.0
    return facts
