"""The real client, aiperf, in a virtual environment of its own: set up once, then one command a run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from calib.emulator.closed_loop import Load
from calib.emulator.physics import EngineSpec
from calib.emulator.supervise import supervised
from calib.errors import CalibError, MissingExtraError

VERSION = "0.13.0"
READY, LOG = ".calib-ready", "calib-install.log"
START_S = 20.0  # a server that does not say its address by then has failed
Say = Callable[[str], None]


class ClientError(CalibError):
    """aiperf could not be set up, or failed."""


def default_venv() -> Path:
    """Where aiperf's environment is kept: in the user's cache folder, one for each Python."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "calib" / f"aiperf-{VERSION}-py{sys.version_info[0]}.{sys.version_info[1]}"


def ensure_aiperf(venv: Path | None, say: Say) -> Path:
    """The ``aiperf`` command, installed into ``venv`` where it is not there yet.

    Raises
    ------
    ClientError
        It cannot be installed; the message ends with what pip said.
    """
    folder = (venv or default_venv()).absolute()
    command = folder / "bin" / "aiperf"
    ours = (folder / LOG).exists()  # else it is an environment that somebody made for themselves
    if command.is_file() and ((folder / READY).is_file() or not ours):
        return command
    say(f"setting up aiperf {VERSION} in {folder}, once; this takes about two minutes and 1.2 GB")
    begun = time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / f".{folder.name}.lock"):
            if not (folder / READY).is_file():  # else another demo was faster
                _install(folder)
                (folder / READY).touch()
    except OSError as error:
        raise ClientError(f"cannot be written ({error.strerror})", file=folder, remedy="choose --aiperf-venv") from None
    say(f"aiperf {VERSION} is ready after {time.monotonic() - begun:.0f} s")
    return command


def _install(folder: Path) -> None:
    log = folder / LOG
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"aiperf=={VERSION}"]
    for command in ([sys.executable, "-m", "venv", str(folder)], [str(folder / "bin" / "python"), *pip]):
        with log.open("wb") as out, supervised(command, log=out, cwd=folder, env=dict(os.environ)) as process:
            code = process.wait()
        if code:
            raise ClientError(
                f"aiperf {VERSION} cannot be installed ({last_line(log)})",
                file=log, remedy="see that file, or use --virtual, which needs no aiperf",
            )  # fmt: skip


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = [x.strip() for x in log.read_text(encoding="utf-8", errors="replace").splitlines() if x.strip()]
    return lines[-1][-300:] if lines else "it said nothing"


@contextlib.contextmanager
def served(spec: EngineSpec, slowdown: float, log: Path) -> Iterator[str]:
    """An emulated engine behind HTTP: its address. Ended on leaving.

    Raises
    ------
    MissingExtraError
        The extra ``demo`` is not installed.
    ClientError
        The server does not start.
    """
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "serving an engine needs the extra 'demo'", remedy="pip install 'llm-calib[demo]', or use --virtual"
        ) from None
    command = [sys.executable, "-P", "-m", "calib.emulator.server", "--slowdown", repr(slowdown),
               "--spec", msgspec.json.encode(spec).decode()]  # fmt: skip
    with (
        log.open("wb") as err,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, start_new_session=True, text=True
        ) as server,
    ):
        try:
            assert server.stdout is not None
            said, _, _ = select.select([server.stdout], [], [], START_S)
            url = server.stdout.readline().strip() if said else ""
            if not url:
                raise ClientError(f"the emulated engine does not start ({last_line(log)})", file=log)
            yield url
        finally:
            server.kill()


def profile(
    aiperf: Path, spec: EngineSpec, load: Load, *, url: str, name: str, work: Path, idle: Callable[[], None]
) -> Path:
    """One run of aiperf, below ``work/artifacts``: the folder of its results. ``idle`` is called while it runs.

    ``work`` holds the tokenizer; paths are relative to it, so that none of this machine gets into the results.

    Raises
    ------
    ClientError
        It failed or left no summary; the message ends with what it said.
    """
    artifacts, log = work / "artifacts" / name, work / "aiperf.log"
    env = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}  # it would look in a hub's cache only
    env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    command = _command(aiperf, spec, load, url, f"artifacts/{name}")
    with log.open("wb") as out, supervised(command, log=out, cwd=work, env=env) as process:
        while process.poll() is None:
            time.sleep(0.1)
            idle()
    if process.returncode or not (artifacts / "profile_export_aiperf.json").is_file():
        raise ClientError(f"aiperf ended with {process.returncode} ({last_line(log)})", file=log)
    return artifacts


def _command(aiperf: Path, spec: EngineSpec, load: Load, url: str, artifacts: str) -> list[str]:
    command = [
        str(aiperf), "profile", "--model", spec.model.name, "--url", url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", "tokenizer", "--artifact-dir", artifacts, "--random-seed", "1",
        "--concurrency", str(load.concurrency), "--request-count", str(load.requests),
        "--isl", str(load.isl), "--isl-stddev", "0", "--osl", str(load.osl), "--osl-stddev", "0",
        "--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{load.osl}",
        "--no-gpu-telemetry", "--server-metrics-formats", "json",
        "--workers-max", "1", "--record-processors", "1", "--ui", "none",
    ]  # fmt: skip
    return command + (["--warmup-request-count", str(load.warmup)] if load.warmup else [])
