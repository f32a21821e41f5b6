"""A tokenizer folder that loads without a hub: one token a byte, so that texts come back as they were.

Byte-level BPE without a merge, in the format of Hugging Face's ``tokenizers``; the letters that stand for bytes are GPT-2's
``bytes_to_unicode``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

SPECIAL = "<|endoftext|>"


def byte_letters() -> list[str]:
    """The letter of each byte: itself where it prints, else the next one from U+0100 on; in order of code points."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    return sorted({chr(b) for b in printable} | {chr(256 + n) for n in range(256 - len(printable))})


def write_tokenizer(folder: Path) -> None:
    """``tokenizer.json`` and the configuration that ``transformers.AutoTokenizer`` looks for."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 256, "content": SPECIAL, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end | {"special": True}],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(byte_letters())}, "merges": []},
    }  # fmt: skip
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict.fromkeys(("eos_token", "pad_token", "bos_token"), SPECIAL),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(msgspec.json.encode(tokenizer))
    (folder / "tokenizer_config.json").write_bytes(msgspec.json.encode(config))
