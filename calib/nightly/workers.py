"""Tasks done by processes of this machine, or by an existing Dask cluster: never more in flight than fit the memory.

Results come in any order; callers sort them, so that nothing depends on how many workers there are. A worker that dies costs
a retry; a task that keeps killing its worker is given back as failed, and the rest goes on.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from calib.errors import MissingExtraError, NightlyError
from calib.nightly.campaign_task import RULING, code_digest

Task = tuple[Any, ...]
T = TypeVar("T")
TRIES = 3
IN_FLIGHT = 4  # tasks a worker
WAIT_S = 20.0  # for a scheduler, and for its first worker
TASKS_A_WORKER = 500  # after which a process is replaced, so that no leak of a library lasts


@dataclass(frozen=True)
class Died:
    """A task whose worker died each time it was tried."""

    reason: str


class Workers(Protocol):
    """Something that runs tasks."""

    def map(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Died]]:
        """``(number of the task, result)`` of each, in any order."""
        ...


@dataclass(frozen=True)
class Here:
    """In this process, one after another."""

    def map(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Died]]:
        """See `Workers`."""
        return ((i, function(*task)) for i, task in enumerate(tasks))


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, started afresh from a clean server: a fork would copy the threads' locks of this one."""

    workers: int

    def map(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Died]]:
        """See `Workers`."""
        left = dict(enumerate(tasks))
        while left:
            suspects: list[int] = []
            for i, result in self._run(function, list(left.items()), suspects):
                del left[i]
                yield i, result
            for i in suspects:  # a worker died, and one of these may have killed it
                yield i, self._alone(function, left.pop(i))

    def _alone(self, function: Callable[..., T], task: Task) -> T | Died:
        for _ in range(TRIES - 1):
            try:
                with _pool(1) as pool:
                    return pool.submit(function, *task).result()
            except BrokenProcessPool:
                continue
        return Died("the process that worked on it was killed, each time")

    def _run(
        self, function: Callable[..., T], tasks: list[tuple[int, Task]], suspects: list[int]
    ) -> Iterator[tuple[int, T]]:
        """Results until all are there, or until a worker dies; then ``suspects`` are the tasks in flight."""
        todo = iter(tasks)
        ahead = self.workers * IN_FLIGHT
        flying: dict[Future[T], int] = {}
        with _pool(min(self.workers, len(tasks))) as pool:
            try:
                while True:
                    for i, task in itertools.islice(todo, ahead - len(flying)):
                        flying[pool.submit(function, *task)] = i
                    if not flying:
                        return
                    done, _ = wait(flying, return_when=FIRST_COMPLETED)
                    for future in done:
                        result = future.result()
                        yield flying.pop(future), result
            except BrokenProcessPool:
                suspects += flying.values()
            finally:
                for future in flying:
                    future.cancel()


def _pool(workers: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["calib.nightly.campaign_task"])
    return ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=TASKS_A_WORKER)


@dataclass(frozen=True)
class Dask:
    """An existing Dask cluster. Its workers must see the same folders under the same names."""

    address: str

    def map(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T | Died]]:
        """See `Workers`.

        Raises
        ------
        MissingExtraError
            The extra ``dask`` is not installed.
        NightlyError
            The scheduler cannot be reached or is lost, it has no worker, or workers with another calib.
        """
        try:
            import distributed
        except ImportError:
            raise MissingExtraError(
                "--scheduler needs the extra 'dask'", remedy="pip install 'llm-calib[dask]'"
            ) from None
        library: Any = distributed  # not typed throughout
        try:
            client = library.Client(self.address, timeout=WAIT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise NightlyError(
                f"cannot be reached ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
                field="--scheduler", value=self.address, remedy="start the cluster, or leave --scheduler out",
            ) from None  # fmt: skip
        with client:
            try:
                _same_code(client, self.address)
                yield from _on_cluster(client, library, function, tasks)
            except (library.client.FutureCancelledError, library.comm.CommClosedError, TimeoutError) as error:
                said = (str(error).splitlines() or [type(error).__name__])[0]
                raise NightlyError(
                    f"was lost while it worked ({said})", field="--scheduler", value=self.address,
                    remedy="run again: what was read is kept",
                ) from None  # fmt: skip


def _same_code(client: Any, address: str) -> None:
    """Raise unless every worker has this very calib: what they read is stored as read by this one."""
    try:
        client.wait_for_workers(1, timeout=WAIT_S)
        theirs = client.run(code_digest, RULING)
    except TimeoutError:
        raise NightlyError(
            f"has no worker after {WAIT_S:.0f} s", field="--scheduler", value=address, remedy="start workers"
        ) from None
    except ImportError as error:
        raise NightlyError(
            f"has a worker without calib ({error})", field="--scheduler", value=address,
            remedy="install the same version of calib on every worker",
        ) from None  # fmt: skip
    own = code_digest(RULING)
    if other := sorted(w for w, digest in theirs.items() if digest != own):
        raise NightlyError(
            f"has workers with another version of calib ({', '.join(other[:3])})", field="--scheduler", value=address,
            remedy="install the same version of calib on every worker",
        )  # fmt: skip


def _on_cluster(
    client: Any, library: Any, function: Callable[..., T], tasks: Sequence[Task]
) -> Iterator[tuple[int, T | Died]]:
    ahead = IN_FLIGHT * max(1, sum(client.nthreads().values()))
    todo = iter(enumerate(tasks))
    numbers: dict[Any, int] = {}
    running = library.as_completed(loop=client.loop)

    def send() -> bool:
        nxt = next(todo, None)
        if nxt is None:
            return False
        future = client.submit(function, *nxt[1], pure=False, retries=TRIES - 1)
        numbers[future.key] = nxt[0]
        running.add(future)
        return True

    while len(numbers) < ahead and send():
        pass
    for future in running if numbers else ():
        try:
            result: Any = future.result()
        except library.KilledWorker as error:
            result = Died(f"the worker that ran it died each time ({type(error).__name__})")
        number = numbers.pop(future.key)
        future.release()
        send()
        yield number, result


def choose(workers: int, scheduler: str | None) -> Workers:
    """Dask where a scheduler is given, else as many processes as asked for; this one alone for one."""
    if scheduler:
        return Dask(scheduler)
    return Processes(workers) if workers > 1 else Here()
