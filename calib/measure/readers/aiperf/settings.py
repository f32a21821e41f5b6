"""The workload that an aiperf run was asked for, from either layout of ``input_config``.

From 0.9 on it holds ``phases`` and ``datasets``; before that ``loadgen`` and ``input``. A key that is missing or null is
not known and gives no entry: single runs write only what the user set, and calib does not guess the tool's defaults. The
exceptions are switches whose default is "off" in every version (a warm-up, a limit of time, ``ignore_eos``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Known = dict[str, Any]


def workload(config: Mapping[str, Any]) -> tuple[Known, Known]:
    """Columns of the run table, and facts, that ``input_config`` states.

    Raises
    ------
    ValueError
        A value is of another kind than in any known version, or not one value.
    """
    is_new = any(key in config for key in ("phases", "datasets", "models"))
    stated, facts = _new(config) if is_new else _old(config)
    return {k: v for k, v in stated.items() if v is not None}, {k: v for k, v in facts.items() if v is not None}


def flat(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value below ``node`` with its dotted path, list items by their ``name``: ``phases.profiling.concurrency``."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            name = value.get("name", index) if isinstance(value, dict) else index
            yield from flat(value, f"{path}.{name}")
    else:
        yield path, node


def _new(config: Mapping[str, Any]) -> tuple[Known, Known]:
    endpoint = config_section(config, "endpoint")
    phases = _items(config, "phases")
    asked = [p for p in phases if not _is_warmup(p)]
    datasets = _items(config, "datasets")
    prompts = [config_section(d, "prompts") for d in datasets]
    loads = {str(p.get("type") or "unspecified") for p in asked}
    load = loads.pop() if len(loads) == 1 else "mixed" if loads else "unspecified"
    stated: Known = {
        "model": _one((_text(m.get("name")) for m in _items(config_section(config, "models"), "items")), "model"),
        "isl": _one((_length(p.get("isl"), "isl") for p in prompts), "ISL"),
        "osl": _one((_length(p.get("osl"), "osl") for p in prompts), "OSL"),
        # Under a rate ``concurrency`` is only a cap. Phases that differ are pooled, and have no one concurrency.
        "concurrency": _same([whole_count(p.get("concurrency"), "concurrency") for p in asked])
        if load == "concurrency"
        else None,
    }
    requests = [whole_count(p.get("requests"), "requests") for p in asked]
    kinds = {d.get("type") for d in datasets} - {None}
    facts: Known = {
        "load_type": load,
        "rate": _same([_number(p.get("rate"), "rate") for p in asked]),
        "profiling_phases": len(asked) or None,
        "requested_requests": sum(r for r in requests if r) if requests and None not in requests else None,
        "grace_period_s": _same([_number(p.get("grace_period"), "grace_period") for p in asked]),
        "duration_limited": any(p.get("duration") is not None for p in asked),
        "warmup": any(_is_warmup(p) for p in phases),
        "random_prompts": kinds == {"synthetic"} if kinds else None,
        **_endpoint(endpoint, _pairs(endpoint.get("extra"))),
    }
    return stated, facts


def _old(config: Mapping[str, Any]) -> tuple[Known, Known]:
    endpoint, load, given = (config_section(config, key) for key in ("endpoint", "loadgen", "input"))
    prompt = config_section(given, "prompt")
    names = endpoint.get("model_names")
    concurrency = whole_count(load.get("concurrency"), "concurrency")
    rate = _number(load.get("request_rate"), "request_rate")
    pattern = load.get("arrival_pattern") or load.get("request_rate_mode")
    if given.get("fixed_schedule"):
        kind = "fixed_schedule"
    elif rate is None and (pattern == "concurrency_burst" or (pattern is None and concurrency)):
        kind = "concurrency"
    else:
        kind = str(pattern or ("poisson" if rate is not None else "unspecified"))
    stated: Known = {
        "model": _one((_text(n) for n in (names if isinstance(names, list) else [names])), "model"),
        "isl": _length(prompt.get("input_tokens"), "input_tokens"),
        "osl": _length(prompt.get("output_tokens"), "output_tokens"),
        "concurrency": concurrency if kind == "concurrency" else None,
    }
    other = any(given.get(k) for k in ("file", "public_dataset", "custom_dataset_type"))
    facts: Known = {
        "load_type": kind,
        "rate": rate,
        "profiling_phases": 1 if load else None,
        "requested_requests": whole_count(load.get("request_count"), "request_count"),
        "grace_period_s": _number(load.get("benchmark_grace_period"), "benchmark_grace_period"),
        "duration_limited": load.get("benchmark_duration") is not None,
        "warmup": bool(load.get("warmup_request_count") or load.get("warmup_duration")),
        "random_prompts": False if other else True if prompt else None,
        **_endpoint(endpoint, _pairs(given.get("extra"))),
    }
    return stated, facts


def _endpoint(endpoint: Mapping[str, Any], extra: Mapping[str, Any]) -> Known:
    urls = endpoint.get("urls")
    streaming = endpoint.get("streaming")
    return {
        "urls": len(urls) if isinstance(urls, list) and urls else 1 if endpoint.get("url") else None,
        "streaming": streaming if isinstance(streaming, bool) else None,
        "ignore_eos": str(extra.get("ignore_eos")).lower() in ("true", "1"),
    }


def _pairs(extra: object) -> dict[str, Any]:
    """Extra inputs: an object from 0.9 on, pairs before."""
    if isinstance(extra, dict):
        return extra
    pairs = extra if isinstance(extra, list) else []
    return {str(p[0]): p[1] for p in pairs if isinstance(p, list) and len(p) == 2}


def config_section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object at ``key``; an empty one where it is missing or null."""
    value = config.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key} is not an object")
    return value or {}


def _items(config: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = config.get(key)
    if value is not None and not (isinstance(value, list) and all(isinstance(v, dict) for v in value)):
        raise ValueError(f"{key} is not a list of objects")
    return value or []


def _is_warmup(phase: Mapping[str, Any]) -> bool:
    return phase.get("kind") == "warmup" or phase.get("exclude_from_results") is True


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"the model's name is {str(value)[:40]!r} and not text")
    return value or None


def _number(value: object, name: str) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ValueError(f"{name} is {str(value)[:40]!r} and not a number")
    return None if value is None else float(value)


def _length(tokens: object, name: str) -> int | None:
    """Asked length [tokens]: ``mean`` from the command line, ``value`` from a YAML configuration."""
    if isinstance(tokens, dict):
        tokens = tokens.get("value") if tokens.get("mean") is None else tokens["mean"]
    return whole_count(tokens, name)


def whole_count(value: Any, name: str) -> int | None:
    """A positive whole number, or None where it is not given."""
    if value is None:
        return None
    # 10**15: no count is larger, and a larger one would not fit the run table
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < 10**15 or value != int(value):
        raise ValueError(f"{name} is {str(value)[:40]!r} and not a positive whole number")
    return int(value)


def _one(values: Iterator[Any], name: str) -> Any:
    """The only value; several make the run one of no single workload."""
    distinct = list(dict.fromkeys(v for v in values if v is not None))
    if len(distinct) > 1:
        raise ValueError(f"states {len(distinct)} values of {name} ({', '.join(map(str, distinct[:3]))})")
    return distinct[0] if distinct else None


def _same(values: list[Any]) -> Any:
    return values[0] if values and all(v == values[0] for v in values) else None
