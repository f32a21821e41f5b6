"""Write a tokenizer folder that loads without a hub: one token a byte, so texts come back as they were.

Usage: ``python make_tokenizer.py FOLDER``, with `tokenizers` (a dependency of aiperf).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL = "<|endoftext|>"


def main(folder: Path) -> None:
    """``tokenizer.json`` and the configuration that `transformers.AutoTokenizer` looks for."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([SPECIAL])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL,
        "pad_token": SPECIAL,
        "bos_token": SPECIAL,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
