"""The way in: metrics of a handle."""

from __future__ import annotations

import atexit
import functools
import inspect
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Set, Type, TypeVar, cast

from ._dump import Dump
from ._sending import Sender
from ._values import (
    MEMBER_MAX,
    SERIES_MAX,
    Counter,
    Gauge,
    Key,
    Members,
    Samples,
    check_name,
    check_number,
    check_tags,
)

Tags = Optional[Mapping[str, str]]
Function = TypeVar("Function", bound=Callable[..., Any])
Cell = TypeVar("Cell", Counter, Gauge, Samples, Members)

CLOSE_WAIT = 2.0
"""Seconds that the end of a handle waits for what it has to be acknowledged."""

_open: "Set[Metrics]" = set()


class NoInstance(OSError):
    """There is no Flux instance to count for."""


class Metrics:
    """The metrics of a handle. Get them from :func:`connect` or :meth:`Metrics.of`."""

    def __init__(self, handle: Any = None) -> None:
        self._cells: Dict[Key, Any] = {}
        self._dropped = 0
        self._lock = threading.RLock()
        self._closed = False
        self._dump = Dump.from_environment()
        self._sender: Optional[Sender] = None if handle is None else Sender(self._gather, handle)
        _open.add(self)

    @classmethod
    def of(cls, handle: Any) -> "Metrics":
        """Those of a ``flux.Flux``: the same ones with every call, until they are closed.

        They keep the handle open until then, or until the end of the program, which delivers what is left.
        """
        for metrics in _open:
            if metrics._sender is not None and metrics._sender.handle is handle:
                return metrics
        return cls(handle)

    # Counting.

    def count(self, name: str, n: float = 1, tags: Tags = None) -> None:
        """Adds ``n`` to a counter. Whole numbers are exact; others are kept to 1e-6."""
        n = check_number(n)
        self._cell(Counter, "counter", name, tags, lambda cell: cell.add(n))

    def gauge(self, name: str, value: float, tags: Tags = None) -> None:
        """Sets a gauge of this rank."""
        value = check_number(value)
        self._cell(Gauge, "gauge", name, tags, lambda cell: cell.set(value))

    def gauge_add(self, name: str, by: float, tags: Tags = None) -> None:
        """Changes a gauge of this rank, whoever set it."""
        by = check_number(by)
        self._cell(Gauge, "gauge", name, tags, lambda cell: cell.add(by))

    def record(self, name: str, seconds: float, tags: Tags = None) -> None:
        """Records a duration, kept to a nanosecond."""
        nanoseconds = round(check_number(seconds) * 1e9)
        self._cell(Samples, "timer", name, tags, lambda cell: cell.add(nanoseconds))

    def histogram(self, name: str, sample: float, tags: Tags = None) -> None:
        """Records a number that is no duration, such as bytes, kept to 1e-6."""
        millionths = round(check_number(sample) * 1_000_000)
        self._cell(Samples, "histogram", name, tags, lambda cell: cell.add(millionths))

    def member(self, name: str, member: str, tags: Tags = None) -> None:
        """Puts a member into a set: what is wanted is how many different ones there are."""
        if not isinstance(member, str) or not 0 < len(member.encode()) <= MEMBER_MAX:
            raise ValueError(f"{member!r:.60}: a member is a text of 1 to {MEMBER_MAX} bytes")

        def put(cell: Members) -> None:
            if not cell.add(member):
                self._dropped += 1

        self._cell(Members, "set", name, tags, put)

    @contextmanager
    def timing(self, name: str, tags: Tags = None) -> Iterator[None]:
        """Times a block, also one that raises."""
        # A wrong name is said before the block, not after it.
        check_name(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.record(name, time.perf_counter() - start, tags)

    def timed(self, name: str, tags: Tags = None) -> Callable[[Function], Function]:
        """A decorator that times a function, or a coroutine from its first step to its last."""
        check_name(name)

        def decorate(function: Function) -> Function:
            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def timed_coroutine(*args: Any, **kwargs: Any) -> Any:
                    with self.timing(name, tags):
                        return await function(*args, **kwargs)

                return cast(Function, timed_coroutine)

            @functools.wraps(function)
            def timed(*args: Any, **kwargs: Any) -> Any:
                with self.timing(name, tags):
                    return function(*args, **kwargs)

            return cast(Function, timed)

        return decorate

    def counted(self, name: str, tags: Tags = None) -> Callable[[Function], Function]:
        """A decorator that counts calls."""
        check_name(name)

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            def counted(*args: Any, **kwargs: Any) -> Any:
                self.count(name, 1, tags)
                return function(*args, **kwargs)

            return cast(Function, counted)

        return decorate

    def _cell(
        self, make: Type[Cell], kind: str, name: str, tags: Tags, change: Callable[[Cell], Any]
    ) -> None:
        key = (kind, name, check_tags(tags))
        with self._lock:
            cell = self._cells.get(key)
            if cell is None:
                check_name(name)
                if self._sender is None and self._dump is None:
                    return
                if len(self._cells) >= SERIES_MAX:
                    raise ValueError(f"{name}: a handle keeps {SERIES_MAX} series, and has them")
                cell = self._cells[key] = make()
            change(cell)
            if self._sender is not None:
                self._sender.tick()

    # Sending.

    def _gather(self, now: float, stale: Optional[float]) -> "tuple[list[Dict[str, Any]], int]":
        metrics = []
        for (kind, name, tags), cell in self._cells.items():
            said = cell.take(now, stale)
            if said is not None:
                if self._dump is not None:
                    self._dump.add((kind, name, tags), said)
                metrics.append({"name": name, "tags": dict(tags), "type": kind, **said})
        dropped, self._dropped = self._dropped, 0
        return metrics, dropped

    def flush(self, timeout: float = CLOSE_WAIT) -> None:
        """Sends what there is and waits until it is acknowledged. ``OSError``: it is not, is kept, and sent again."""
        with self._lock:
            if self._sender is not None:
                self._sender.flush(timeout)

    async def flush_async(self, timeout: float = CLOSE_WAIT) -> None:
        """As :meth:`flush`, without blocking the event loop. Only one of a program's threads may be in it."""
        if self._sender is not None:
            await self._sender.flush_async(timeout)

    def close(self, timeout: float = CLOSE_WAIT) -> None:
        """As :meth:`flush`, and ends: what is counted afterwards is lost. What is not delivered is lost, and an
        ``OSError`` says why. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            try:
                self.flush(timeout)
            finally:
                self._end()

    async def close_async(self, timeout: float = CLOSE_WAIT) -> None:
        """As :meth:`close`, without blocking the event loop."""
        if self._closed:
            return
        try:
            await self.flush_async(timeout)
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        _open.discard(self)
        if self._sender is not None:
            self._sender.detach()
        elif self._dump is not None:
            self._gather(time.monotonic(), None)
        if self._dump is not None:
            self._dump.write()
        self._sender, self._dump = None, None
        self._cells.clear()

    # A program does not fail because nobody takes its metrics: what is lost is logged.

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: Any) -> None:
        with suppress(OSError):
            self.close()

    async def __aenter__(self) -> "Metrics":
        return self

    async def __aexit__(self, *_: Any) -> None:
        with suppress(OSError):
            await self.close_async()


@atexit.register
def _close_all() -> None:
    for metrics in list(_open):
        with suppress(OSError):
            metrics.close()


def connect(uri: Optional[str] = None, *, optional: bool = False) -> Metrics:
    """Connects to ``uri``, or to the enclosing instance, with a handle of its own.

    Raises :class:`NoInstance` where there is none (or no ``flux`` bindings); with ``optional``, metrics that count
    nothing are returned instead (and are dumped, if ``FLUX_METRICS_DUMP`` asks for it).
    """
    try:
        import flux  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        if optional:
            return Metrics()
        raise NoInstance(
            f"no Flux bindings for this Python ({error}): run under `flux python`, install flux-python, or ask for "
            "metrics that count nothing with connect(optional=True)"
        ) from error
    try:
        handle = flux.Flux(uri) if uri is not None else flux.Flux()
    except OSError as error:
        if optional:
            return Metrics()
        raise NoInstance(
            f"no Flux instance at {uri or 'FLUX_URI'} ({error}): start one (flux start), or ask for metrics that count "
            "nothing with connect(optional=True)"
        ) from error
    return Metrics(handle)
