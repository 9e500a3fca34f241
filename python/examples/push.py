"""Counts known numbers for a while, and says what it counted.

push.py MODE SECONDS TAG: as crates/flux-metrics/examples/push.rs; MODE may be asyncio, too.
"""

import asyncio
import json
import sys
import time

import flux

import flux_metrics

BEAT = 0.01


class Counting:
    def __init__(self, metrics, tag):
        self.metrics, self.tags = metrics, {"by": tag}
        self.counted = self.beats = 0

    def beat(self):
        n = 1 + self.counted % 7
        self.metrics.count("push.count", n, self.tags)
        self.metrics.record("push.wait_s", 0.005, self.tags)
        self.counted += n
        self.beats += 1


def in_reactor(handle, counting, until):
    def fired(*_):
        counting.beat()
        if time.monotonic() >= until:
            handle.reactor_stop()

    timer = handle.timer_watcher_create(BEAT, fired, repeat=BEAT).start()
    handle.reactor_run()
    timer.stop()


async def in_event_loop(counting, until):
    async with counting.metrics:
        while time.monotonic() < until:
            counting.beat()
            await asyncio.sleep(BEAT)


def main():
    mode, seconds, tag = sys.argv[1:]
    until = time.monotonic() + float(seconds)
    handle = flux.Flux()
    counting = Counting(flux_metrics.Metrics.of(handle), tag)
    if mode == "reactor":
        in_reactor(handle, counting, until)
    elif mode == "plain":
        while time.monotonic() < until:
            counting.beat()
            time.sleep(BEAT)
    elif mode == "once":
        counting.beat()
    elif mode == "asyncio":
        asyncio.run(in_event_loop(counting, until))
    else:
        sys.exit(f"{mode}: expected reactor, plain, once or asyncio")
    print(json.dumps({"count": counting.counted, "samples": counting.beats}))
    # The end of the program delivers what is left.


if __name__ == "__main__":
    main()
