"""The shape of a model, from its Hugging Face ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from calib.errors import BreakdownError
from calib.files import read_bytes

LARGEST = 10**7  # of a width, a vocabulary or a count


@dataclass(frozen=True)
class Moe:
    """Mixture of experts: ``top_k`` of ``experts`` experts of width ``intermediate``, and ``shared`` that always run.

    ``dense_layers`` leading layers have an ordinary feed-forward network instead.
    """

    experts: int
    top_k: int
    intermediate: int
    shared: int
    dense_layers: int


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention: ranks and head dimensions."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True)
class ModelShape:
    """What the cost of a step depends on. ``weight_bytes`` is that of one weight of a linear layer (2 for bf16, 1 for fp8)."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied_head: bool
    weight_bytes: int
    moe: Moe | None = None
    mla: Mla | None = None


def load_shape(model: str, config: str | Path | None = None) -> ModelShape:
    """The shape of ``model``: from the folder or file ``config``, else from the configurations shipped with calib.

    Raises
    ------
    BreakdownError
        There is no configuration, or a field is missing or impossible.
    """
    if config is not None:
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        return parse_shape(read_bytes(path, kind=BreakdownError), file=path)
    shipped = files("calib.data") / "model_configs" / model.replace("/", "--") / "config.json"
    if len(model) > 200 or "/" in model.replace("/", "", 1) or ".." in model or not shipped.is_file():
        raise BreakdownError(
            "has no shipped configuration", field="model", value=model,
            remedy="give the folder with its Hugging Face config.json with --model-config",
        )  # fmt: skip
    return parse_shape(shipped.read_bytes(), file=f"{model}/config.json")


def parse_shape(data: bytes, *, file: str | Path) -> ModelShape:
    """The shape in the bytes of a ``config.json``.

    Raises
    ------
    BreakdownError
        Not JSON, or a field is missing or not a positive whole number.
    """
    try:
        config = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BreakdownError(f"is not JSON ({error})", file=file, remedy="give a Hugging Face config.json") from None
    if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
        config = config["text_config"]  # a multi-modal model: the language part
    if not isinstance(config, dict):
        raise BreakdownError("is not a model configuration", file=file, remedy="give a Hugging Face config.json")

    def count(*names: str, default: int | None = None) -> int:
        for name in names:
            value = config.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
                    raise BreakdownError(
                        f"must be a whole number between 1 and {LARGEST}", file=file, field=name, value=value,
                        remedy="give a complete config.json",
                    )  # fmt: skip
                return value
        if default is None:
            raise BreakdownError("is missing", file=file, field=names[0], remedy="give a complete config.json")
        return default

    hidden, heads = count("hidden_size"), count("num_attention_heads")
    shape = ModelShape(
        hidden=hidden,
        intermediate=count("intermediate_size", "moe_intermediate_size"),
        layers=count("num_hidden_layers"),
        heads=heads,
        kv_heads=count("num_key_value_heads", default=heads),
        head_dim=count("head_dim", default=max(1, hidden // heads)),
        vocab=count("vocab_size"),
        tied_head=bool(config.get("tie_word_embeddings", False)),
        weight_bytes=_weight_bytes(config, file),
        moe=_moe(config, count),
        mla=_mla(config, count),
    )
    moe = shape.moe
    if moe and (moe.top_k > moe.experts or moe.dense_layers > shape.layers):
        name = "num_experts_per_tok" if moe.top_k > moe.experts else "first_k_dense_replace"
        raise BreakdownError("is more than there are", file=file, field=name, remedy="give a complete config.json")
    if shape.heads % shape.kv_heads:
        raise BreakdownError("does not divide num_attention_heads", file=file, field="num_key_value_heads",
                             value=shape.kv_heads)  # fmt: skip
    return shape


def _moe(config: dict[str, Any], count: Any) -> Moe | None:
    if not any(config.get(n) for n in ("num_experts", "n_routed_experts", "num_local_experts")):
        return None
    return Moe(
        experts=count("n_routed_experts", "num_experts", "num_local_experts"),
        top_k=count("num_experts_per_tok"),
        intermediate=count("moe_intermediate_size", "intermediate_size"),
        shared=count("n_shared_experts") if config.get("n_shared_experts") else 0,
        dense_layers=count("first_k_dense_replace") if config.get("first_k_dense_replace") else 0,
    )


def _mla(config: dict[str, Any], count: Any) -> Mla | None:
    if not config.get("kv_lora_rank"):
        return None
    return Mla(
        q_rank=count("q_lora_rank", default=count("hidden_size")),
        kv_rank=count("kv_lora_rank"),
        nope_dim=count("qk_nope_head_dim"),
        rope_dim=count("qk_rope_head_dim"),
        v_dim=count("v_head_dim"),
    )


def _weight_bytes(config: dict[str, Any], file: str | Path) -> int:
    quantization = config.get("quantization_config")
    if quantization is None:
        return 2
    method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
    if method in ("fp8", "fbgemm_fp8"):
        return 1
    raise BreakdownError(
        "is not a weight format the roofline knows", file=file, field="quantization_config.quant_method", value=method,
        remedy="use bf16 or fp8 weights, or a breakdown file",
    )  # fmt: skip
