"""Result files opened: one or several JSON documents in a plain, gzip or zstd file, recognised by its first bytes.

The size limit holds for the *decompressed* bytes, which are produced in small pieces, so that a file made to explode is
refused before it fills the memory. ``NaN`` and ``Infinity`` are read as numbers, since SGLang and genai-perf write them;
readers take what is not finite for unknown.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from calib.errors import CampaignError
from calib.files import read_bytes, sha256_bytes

SIZE_LIMIT = 128 * 2**20
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
# A block of zstd can stand for 128 KiB in 4 bytes: pieces this small expand to 8 MiB at most.
PIECE = 256
PARTS = 100_000  # packed parts one after another; a file of millions of empty ones would take minutes
ZSTD_WINDOW = 2**27  # what `zstd --long` writes at most; a frame may ask for gigabytes
_SPACE = re.compile(r"\s*")


class BrokenFileError(CampaignError):
    """A file that may hold runs cannot be opened as JSON."""


def read_content(path: Path, *, limit: int = SIZE_LIMIT) -> tuple[bytearray, str]:
    """Decompressed content of ``path``, and the SHA-256 of the file as it lies on the disk.

    Raises
    ------
    BrokenFileError
        Not a regular file, unreadable, damaged, or more than ``limit`` bytes, as it is or decompressed.
    """
    if not path.is_file():  # opening a pipe would wait for ever
        raise BrokenFileError("is not a file", file=path, remedy="name a result file")
    data = read_bytes(path, kind=BrokenFileError, limit=limit)
    return expand(data, file=path, limit=limit), sha256_bytes(data)


def expand(data: bytes, *, file: str | Path, limit: int = SIZE_LIMIT) -> bytearray:
    """``data`` decompressed if its first bytes are those of gzip or zstd, else a copy.

    Raises
    ------
    BrokenFileError
        Damaged or cut off, or more than ``limit`` bytes come out.
    """
    packed = "gzip" if data.startswith(GZIP) else "zstd" if data.startswith(ZSTD) else ""
    pieces = _pieces(data, _gzip_part if packed == "gzip" else _zstd_part) if packed else iter((data,))
    content = bytearray()
    try:
        for piece in pieces:
            content += piece
            if len(content) > limit:
                raise BrokenFileError(
                    f"expands to more than {limit / 2**20:g} MiB" if packed else f"is over {limit / 2**20:g} MiB",
                    file=file,
                    remedy="name a result file, not a trace or a payload dump",
                )
    except (EOFError, zlib.error, zstandard.ZstdError, MemoryError) as error:
        raise BrokenFileError(
            f"is a damaged or incomplete {packed} file ({str(error) or type(error).__name__})",
            file=file,
            remedy="copy it again",
        ) from None
    return content


def _pieces(data: bytes, begin: Callable[[], Any]) -> Iterator[bytes]:
    """What all parts of a packed file expand to. The readers of both libraries take some cut files for whole ones."""
    part: Any = None
    parts = 0
    for start in range(0, len(data), PIECE):
        rest = data[start : start + PIECE]
        while rest:
            if part is None:
                part, parts = begin(), parts + 1
                if parts > PARTS:
                    raise EOFError(f"it has more than {PARTS} parts")
            yield part.decompress(rest)
            rest = part.unused_data if part.eof else b""
            part = None if part.eof else part
    if part is not None:
        raise EOFError("it ends within a part")


def _gzip_part() -> Any:
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


def _zstd_part() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()


def parse_documents(content: bytes | bytearray, *, file: str | Path) -> Iterator[object]:
    """The JSON documents that stand one after another in ``content``: one, one a line, or simply concatenated.

    Raises
    ------
    BrokenFileError
        When the first document that is no JSON is reached: binary, not UTF-8, cut off, nested too deep, a key twice in
        one object, or a number of thousands of digits.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    document = _text(content, file)
    position = _SPACE.match(document).end()  # type: ignore[union-attr]  # \s* always matches
    while position < len(document):
        try:
            value, position = decoder.raw_decode(document, position)
        except json.JSONDecodeError as error:
            problem = f"is not JSON (line {error.lineno}, column {error.colno}: {error.msg})"
            raise BrokenFileError(problem, file=file, remedy="copy or run it again") from None
        except RecursionError:
            problem = "is nested too deep for a result file"
            raise BrokenFileError(problem, file=file, remedy="name a result file") from None
        except ValueError as error:
            problem = str(error) if isinstance(error, _TwiceError) else "holds a number of thousands of digits"
            raise BrokenFileError(problem, file=file, remedy="run it again") from None
        yield value
        position = _SPACE.match(document, position).end()  # type: ignore[union-attr]


class _TwiceError(ValueError):
    """A key stands twice in one object: which value was meant is not known."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _TwiceError(f"has the key {twice[:40]!r} twice in one object")
    return values


def _text(content: bytes | bytearray, file: str | Path) -> str:
    try:
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise BrokenFileError("is UTF-16 text", file=file, remedy="save it as UTF-8")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BrokenFileError(
            f"is not UTF-8 text (byte {error.start})", file=file, remedy="name a JSON result file"
        ) from None
    if "\0" in text:
        raise BrokenFileError("is a binary file", file=file, remedy="name a JSON result file")
    return text
