"""loadgen, as a broker module in Python (flux-core 0.88 and later): a module of known behaviour, in a process of its own.

Takes the arguments rate=, busy=, block=, holder= and spin= of loadgen.so, with times in the units s, ms and us, and
answers NAME.stats-get and NAME.stop as it does.
"""

import time

from flux.brokermod import BrokerModule, request_handler

UNITS = (("ms", 1e-3), ("us", 1e-6), ("s", 1.0))
QUANTILES = (0.5, 0.9, 0.97, 0.99, 1.0)


def seconds(word):
    for unit, scale in UNITS:
        if word.endswith(unit):
            return float(word[: -len(unit)]) * scale
    return float(word)


def work(busy_s):
    start = now = time.monotonic()
    while now - start < busy_s:
        now = time.monotonic()
    return now - start


class Loadgen(BrokerModule):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        plan = {"rate": "0", "busy": "0s", "block": "0s", "holder": "holder", "spin": "0s"}
        for arg in args:
            key, _, value = arg.partition("=")
            if key not in plan:
                raise ValueError(f"{arg}: unknown argument; allowed: {', '.join(plan)}")
            plan[key] = value
        self.holder = plan["holder"]
        self.busy_s, self.block_s, self.spin_s = (seconds(plan[key]) for key in ("busy", "block", "spin"))
        self.turns_s, self.blocked_s, self.waited_s, self.spun_s = [], 0.0, 0.0, 0.0
        self.timers = []
        if float(plan["rate"]) > 0:
            interval = 1 / float(plan["rate"])
            self.timers.append(h.timer_watcher_create(interval, self.on_beat, repeat=interval))
        if self.spin_s > 0:
            self.timers.append(h.timer_watcher_create(0.0, self.on_spin))
        for timer in self.timers:
            timer.start()

    def on_beat(self, handle, watcher, revents, args):
        self.turns_s.append(work(self.busy_s))
        if self.block_s > 0:
            start, cpu = time.monotonic(), time.thread_time()
            handle.rpc(f"{self.holder}.hold", {"seconds": self.block_s}).get()
            took = time.monotonic() - start
            self.blocked_s += took
            self.waited_s += took - (time.thread_time() - cpu)

    def on_spin(self, handle, watcher, revents, args):
        self.spun_s += work(self.spin_s)

    def done(self):
        turns = sorted(self.turns_s)
        last = len(turns) - 1
        return {
            "wakeups": len(turns),
            "busy_s": sum(turns),
            "busy_quantiles_s": [turns[int(last * q)] for q in QUANTILES] if turns else None,
            "blocked_s": self.blocked_s,
            "waited_s": self.waited_s,
            "spun_s": self.spun_s,
            "pushed": 0,
            "errors": 0,
        }

    @request_handler("stats-get")
    def stats_get(self, msg):
        self.handle.respond(msg, self.done())

    @request_handler("stop")
    def on_stop(self, msg):
        for timer in self.timers:
            timer.stop()
        self.handle.respond(msg, self.done())
