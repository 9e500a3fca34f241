"""Pushes: one at a time, each again with the same number until it is answered."""

from __future__ import annotations

import asyncio
import errno
import secrets
import signal
import syslog
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

TOPIC = "stats-agg.push"
"""Where pushes go: to this broker's own module. Always the same one, so that it knows a repeat."""

PERIOD = 2.0
"""Seconds between two pushes, before the service has said how often it is worth to push."""
PERIOD_MIN = 0.1
PERIOD_MAX = 3600.0
PATIENCE = 4
"""While nobody takes pushes the time between two attempts doubles, up to so many periods."""
METRICS_MAX = 1000
"""Metrics in one push; more are several, one after the other."""
CALL_WAIT = 0.1
"""Seconds that a call may wait for the answer to a push, where neither a reactor nor an event loop does."""
LOOP_WAIT = 10.0
"""Seconds after which an event loop does not wait for an answer any more; the push is sent again."""
LOOK = 0.001
"""Seconds of a look for an answer."""

Gather = Callable[[float, Optional[float]], Tuple[List[Dict[str, Any]], int]]


@contextmanager
def interrupt_kept() -> Iterator[None]:
    """Keeps the handler of SIGINT: the bindings do not put it back when a future has failed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def wait(future: Any, seconds: float) -> Dict[str, Any]:
    """The answer, waited for; OSError: there is none, or it is an error."""
    with interrupt_kept():
        future.wait_for(seconds)
        return future.get() or {}


class Sender:
    """What sends."""

    def __init__(self, gather: Gather, handle: Any) -> None:
        self._gather = gather
        # Until it is closed: what is counted last could not be delivered by a handle that is gone.
        self.handle: Any = handle
        self._rank: Optional[int] = None
        self._timer: Any = None
        self._loop_call: Optional[asyncio.TimerHandle] = None
        self._pending: Any = None
        self._queue: Deque[Dict[str, Any]] = deque()
        self._id = secrets.token_hex(8)
        self._seq = 0
        self._period = PERIOD
        self._ttl: Optional[float] = None
        self._due = time.monotonic() + PERIOD
        self._failures = 0
        self._complaint = ""
        self._error: OSError = OSError(errno.EIO, "nothing was sent")

    def tick(self) -> None:
        """Something was counted: sends if it is time, in the way that suits who runs."""
        now = time.monotonic()
        if now < self._due and self._timer is not None:
            return
        handle = self.handle
        if handle is None:
            return
        if getattr(handle.tls, "reactor_depth", 0) > 0:
            self._watch_time(handle)
            # Where the reactor runs its timer sends, unless this callback has kept it for long.
            if now < self._due + self._period:
                return
        if now < self._due or self._loop_call is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._advance(handle, now + CALL_WAIT)
        else:
            self._begin_in_loop(handle, loop, now)

    # The reactor's way.

    def _watch_time(self, handle: Any) -> None:
        if self._timer is not None:
            return
        weak = weakref.ref(self)

        def fired(*_: Any) -> None:
            sender = weak()
            if sender is not None:
                sender._on_timer()

        self._timer = handle.timer_watcher_create(self._period, fired, repeat=self._period).start().unref()

    def _on_timer(self) -> None:
        handle, now = self.handle, time.monotonic()
        if handle is None or self._pending is not None or now < self._due - self._period / 2:
            return
        self._plan(now)
        self._send_in_reactor(handle, now)

    def _send_in_reactor(self, handle: Any, now: float) -> None:
        payload = self._front(now)
        if payload is None:
            return
        weak = weakref.ref(self)

        def answered(future: Any) -> None:
            sender = weak()
            if sender is not None and sender._pending is future:
                sender._pending = None
                if sender._settle(handle, future, 0) and sender._queue:
                    sender._send_in_reactor(handle, time.monotonic())

        try:
            self._pending = self._send(handle, payload)
        except OSError as error:
            self._fail(handle, error)
            return
        self._pending.then(answered)

    # The event loop's way.

    def _begin_in_loop(self, handle: Any, loop: asyncio.AbstractEventLoop, now: float) -> None:
        self._plan(now)
        payload = self._front(now)
        if payload is None:
            return
        try:
            future = self._send(handle, payload)
        except OSError as error:
            self._fail(handle, error)
            return

        def look(delay: float = 0.02) -> None:
            self._loop_call = None
            late = time.monotonic() > now + LOOP_WAIT
            if not late and not self._is_answered(future):
                self._loop_call = loop.call_later(delay, look, min(2 * delay, 0.5))
            elif self._settle(handle, future, LOOK) and self._queue:
                self._begin_in_loop(handle, loop, time.monotonic())

        self._loop_call = loop.call_later(0.02, look)

    @staticmethod
    def _is_answered(future: Any) -> bool:
        try:
            with interrupt_kept():
                future.wait_for(LOOK)
        except OSError as error:
            return error.errno != errno.ETIMEDOUT
        return True

    async def flush_async(self, timeout: float) -> None:
        """As flush, without blocking the event loop."""
        until = time.monotonic() + timeout
        self._forget_loop_call()
        while True:
            handle, now = self.handle, time.monotonic()
            payload = None if handle is None else self._front(now)
            if payload is None:
                return
            future = self._send(handle, payload)
            while not self._is_answered(future):
                if time.monotonic() > until:
                    break
                await asyncio.sleep(0.01)
            if not self._settle(handle, future, LOOK):
                raise self._error

    def _forget_loop_call(self) -> None:
        if self._loop_call is not None:
            self._loop_call.cancel()
            self._loop_call = None

    # The caller's way.

    def flush(self, timeout: float) -> None:
        """Sends what there is and waits for the answers; OSError says why there are none."""
        self._forget_loop_call()
        handle = self.handle
        if handle is not None and not self._advance(handle, time.monotonic() + timeout):
            raise self._error

    def _advance(self, handle: Any, until: float) -> bool:
        now = time.monotonic()
        self._plan(now)
        if self._pending is not None:
            # The reactor's own, whose answer will not come by it now.
            pending, self._pending = self._pending, None
            if not self._settle(handle, pending, until - now):
                return False
        while True:
            payload = self._front(now)
            if payload is None:
                return True
            try:
                future = self._send(handle, payload)
            except OSError as error:
                self._fail(handle, error)
                return False
            if not self._settle(handle, future, max(until - time.monotonic(), LOOK)):
                return False

    # All of them.

    def _plan(self, now: float) -> None:
        self._due = now + self._period * min(2 ** min(self._failures, 8), PATIENCE)

    def _front(self, now: float) -> Optional[Dict[str, Any]]:
        """The push to be sent next."""
        if not self._queue:
            stale = None if self._ttl is None else now - self._ttl / 2
            metrics, dropped = self._gather(now, stale)
            while metrics or dropped:
                self._seq += 1
                self._queue.append(
                    {
                        "version": 1,
                        "id": self._id,
                        "seq": self._seq,
                        "dropped": dropped,
                        "metrics": metrics[:METRICS_MAX],
                    }
                )
                metrics, dropped = metrics[METRICS_MAX:], 0
        return self._queue[0] if self._queue else None

    def _send(self, handle: Any, payload: Dict[str, Any]) -> Any:
        if self._rank is None:
            self._rank = int(handle.attr_get("rank"))
        return handle.rpc(TOPIC, payload, nodeid=self._rank)

    def _settle(self, handle: Any, future: Any, seconds: float) -> bool:
        """Takes the outcome of the oldest push; False: it is kept, to be sent again."""
        try:
            receipt = wait(future, seconds)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EPROTO, errno.EPERM):
                # It was read, and would be refused again.
                self._queue.popleft()
                self._complain(handle, syslog.LOG_WARNING, f"metrics refused: {error}")
                return True
            self._fail(handle, error)
            return False
        self._queue.popleft()
        self._failures = 0
        self._complaint = ""
        self._heed(handle, receipt)
        return True

    def _fail(self, handle: Any, error: OSError) -> None:
        self._error = error
        self._failures += 1
        # Normal where the module is not loaded, and on a busy machine.
        level = syslog.LOG_DEBUG if error.errno in (errno.ENOSYS, errno.ETIMEDOUT) else syslog.LOG_WARNING
        self._complain(handle, level, f"metrics not taken: {error}; kept, and sent again")

    def _heed(self, handle: Any, receipt: Dict[str, Any]) -> None:
        self._ttl = receipt.get("ttl", self._ttl)
        period = min(max(receipt.get("period", self._period), PERIOD_MIN), PERIOD_MAX)
        if period != self._period:
            self._period = period
            self._due = time.monotonic() + period
            # Made anew at the next call in the reactor, with this period.
            self._stop_timer()
        for refused in receipt.get("refused", [])[:1]:
            text = f"metric refused: {refused.get('name')}: {refused.get('reason')}"
            self._complain(handle, syslog.LOG_WARNING, text)

    def _complain(self, handle: Any, level: int, text: str) -> None:
        if text != self._complaint:
            handle.log(level, text)
            self._complaint = text

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def detach(self) -> None:
        """Lets go of the handle. What is not sent is lost, and logged."""
        handle = self.handle
        self._forget_loop_call()
        self._stop_timer()
        self._pending = None
        if handle is not None:
            self._gather_rest(handle)
        self.handle = None

    def _gather_rest(self, handle: Any) -> None:
        self._front(time.monotonic())
        if self._queue:
            lost = f"{len(self._queue)} pushes of metrics are lost: {self._complaint or 'not flushed'}"
            level = syslog.LOG_DEBUG if "not taken" in self._complaint else syslog.LOG_WARNING
            handle.log(level, lost)
