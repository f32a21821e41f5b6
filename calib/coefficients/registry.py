"""Which coefficient files are released, and which were withdrawn: an append-only list beside the files.

``registry.jsonl`` holds one JSON entry a line, a release or a withdrawal: who, when, why, and which gates were passed. Every
entry names the SHA-256 of the line before it, so that a line that was changed or removed is noticed. An entry is appended by
one write followed by fsync, under a lock; a last line that a crash has torn is an error, and the next entry sets it aside.
Files are ``coefficients-<digest>.json``, written atomically and never overwritten.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from calib.coefficients.file import CoefficientSet
from calib.coefficients.registry_entries import FIRST, Entry, GateResult, read_entries, split_torn
from calib.errors import OutputError, RegistryError, WithdrawnError, printable
from calib.files import DATA, SHORT, now_utc, read_bytes, sha256_bytes, user_name

if TYPE_CHECKING:
    from pathlib import Path


FILE_NAME = "registry.jsonl"
# Text and os.path rather than pathlib, whose import a prediction service would wait for.
SHIPPED = os.path.join(DATA, "released")


class Registry(msgspec.Struct, frozen=True):
    """A folder of released files and what was said of them, in the order it was said."""

    folder: str
    entries: tuple[Entry, ...]

    @classmethod
    def open(cls, folder: str | Path) -> Registry:
        """Read the registry of a folder; one that has none is empty.

        Raises
        ------
        RegistryError
            A line is torn, not valid, or does not follow the line before it.
        """
        path = os.path.join(folder, FILE_NAME)
        if not os.path.exists(path):
            return cls(os.fspath(folder), ())
        data = read_bytes(path, kind=RegistryError)
        whole, torn = split_torn(data)
        if torn:
            raise RegistryError(
                f"ends in {len(torn)} bytes of a torn line: a release or a withdrawal was interrupted",
                file=path,
                remedy="repeat it with `calib release` or `calib withdraw`, which set the torn line aside",
            )
        return cls(os.fspath(folder), tuple(read_entries(whole, path)))

    @property
    def file(self) -> str:
        """The path of the list."""
        return os.path.join(self.folder, FILE_NAME)

    def path_of(self, entry: Entry) -> str:
        """The path of a released file."""
        return os.path.join(self.folder, entry.file)

    @property
    def releases(self) -> tuple[Entry, ...]:
        """Every release, oldest first, withdrawn ones included."""
        return tuple(e for e in self.entries if e.action == "release")

    @property
    def current(self) -> tuple[Entry, ...]:
        """Releases that stand, newest first: neither withdrawn nor superseded by one that stands."""
        standing = [e for e in self.releases if self.withdrawal(e.digest) is None]
        replaced = {e.supersedes for e in standing}
        return tuple(e for e in reversed(standing) if e.digest not in replaced)

    def withdrawal(self, digest: str) -> Entry | None:
        """The entry that withdrew a file, known by its own digest or by that of the candidate it was made from."""
        found = (e for e in self.entries if e.action == "withdraw" and digest in (e.digest, e.candidate))
        return next(found, None)

    def find(self, digest: str) -> Entry:
        """The release whose digest, or whose candidate's, begins with ``digest``.

        Raises
        ------
        RegistryError
            None, or several.
        """
        found = [e for e in self.releases if digest and (e.digest.startswith(digest) or e.candidate.startswith(digest))]
        if len({e.digest for e in found}) == 1:
            return found[0]
        known = ", ".join(e.digest[:SHORT] for e in self.releases) or "nothing"
        raise RegistryError(
            f"names {len(found)} released files",
            file=self.file,
            field="digest",
            value=digest,
            remedy=f"give one of those that are released: {known}",
        )

    def load(self, entry: Entry) -> CoefficientSet:
        """The file of a release.

        Raises
        ------
        CoefficientFileError
            It cannot be read, or is not valid.
        RegistryError
            It is another file than was released.
        """
        loaded = CoefficientSet.load(self.path_of(entry))
        if loaded.digest != entry.digest:
            raise RegistryError(
                "is not the file that was released under this name",
                file=self.path_of(entry),
                field="digest",
                value=loaded.digest[:SHORT],
                remedy=f"restore the file with digest {entry.digest[:SHORT]}",
            )
        return loaded

    def require_standing(self, coefficients: CoefficientSet, file: str | Path | None = None) -> None:
        """Raise where a file was withdrawn.

        Raises
        ------
        WithdrawnError
            With who withdrew it, when and why.
        """
        entry = self.withdrawal(coefficients.digest)
        if entry is not None:
            raise WithdrawnError(
                f"was withdrawn at {entry.at} by {entry.by}: {entry.why}",
                file=file,
                field="digest",
                value=coefficients.digest[:SHORT],
                remedy="load another released file; `calib show` lists them",
            )

    def add(
        self,
        coefficients: CoefficientSet,
        *,
        candidate: str,
        why: str,
        gates: tuple[GateResult, ...],
        left_out: tuple[str, ...] = (),
    ) -> Entry:
        """Copy a sealed set into the folder and enter its release; the gates are the caller's (`calib.coefficients.releasing`).

        Raises
        ------
        RegistryError
            It was withdrawn before.
        OutputError
            The folder cannot be written.
        """
        name = f"coefficients-{coefficients.digest[:SHORT]}.json"
        _make(self.folder)
        coefficients.save(os.path.join(self.folder, name))
        return self._append(
            Entry(
                action="release", digest=coefficients.digest, candidate=candidate, file=name, at=now_utc(),
                by=user_name(), why=printable(why), gates=gates, left_out=left_out, supersedes=coefficients.supersedes,
            )
        )  # fmt: skip

    def withdraw(self, digest: str, why: str) -> Entry:
        """Enter the withdrawal of a release.

        Raises
        ------
        RegistryError
            No such release, or it is withdrawn already, or no reason is given.
        OutputError
            The folder cannot be written.
        """
        released = self.find(digest)
        if not why.strip():
            raise RegistryError("needs a reason", field="why", value=why, remedy="say what is wrong with the file")
        if earlier := self.withdrawal(released.digest):
            raise RegistryError(
                f"was withdrawn already at {earlier.at} by {earlier.by}: {earlier.why}",
                file=self.file, field="digest", value=released.digest[:SHORT], remedy="leave it",
            )  # fmt: skip
        return self._append(
            msgspec.structs.replace(
                released, action="withdraw", at=now_utc(), by=user_name(), why=printable(why), gates=(), supersedes=None,
                torn=None,
            )
        )  # fmt: skip

    def _append(self, entry: Entry) -> Entry:
        """One write and fsync under a lock; a torn last line is cut off and kept in the entry."""
        import fcntl

        path = self.file
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                whole, torn = split_torn(os.pread(handle, os.fstat(handle).st_size, 0))
                if tuple(read_entries(whole, path)) != self.entries:  # another process was here since we looked
                    raise RegistryError("has changed meanwhile", file=path, remedy="repeat the command")
                lines = whole.splitlines()
                made = msgspec.structs.replace(
                    entry,
                    previous=sha256_bytes(lines[-1]) if lines else FIRST,
                    torn=torn.decode("utf-8", "backslashreplace") if torn else None,
                )
                os.ftruncate(handle, len(whole))
                line = msgspec.json.encode(made) + b"\n"
                if os.pwrite(handle, line, len(whole)) != len(line):
                    raise OSError(0, "only a part of the entry was written")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise OutputError(
                f"cannot be written ({error.strerror or error})",
                file=path,
                remedy="choose a writable folder with --registry",
            ) from None
        return made


def open_to_append(folder: str | Path) -> Registry:
    """The registry of a folder for one more entry: a torn last line is left to `Registry._append` to set aside.

    Raises
    ------
    RegistryError
        Another line is not valid.
    """
    path = os.path.join(folder, FILE_NAME)
    if not os.path.exists(path):
        return Registry(os.fspath(folder), ())
    return Registry(os.fspath(folder), tuple(read_entries(split_torn(read_bytes(path, kind=RegistryError))[0], path)))


def _make(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot be made ({error.strerror or error})",
            file=folder,
            remedy="choose a writable folder with --registry",
        ) from None
