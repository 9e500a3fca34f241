"""loadgen, as a broker module in Python (flux-core 0.88 and later): a module of known behaviour, in a process of its own.

Takes the arguments rate=, busy=, block= and holder= of loadgen.so, with times in the units s, ms and us, and answers
NAME.stats-get as it does.
"""

import time

from flux.brokermod import BrokerModule, request_handler

UNITS = (("ms", 1e-3), ("us", 1e-6), ("s", 1.0))


def seconds(word):
    for unit, scale in UNITS:
        if word.endswith(unit):
            return float(word[: -len(unit)]) * scale
    return float(word)


class Loadgen(BrokerModule):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        plan = {"rate": "0", "busy": "0s", "block": "0s", "holder": "holder"}
        for arg in args:
            key, _, value = arg.partition("=")
            if key not in plan:
                raise ValueError(f"{arg}: unknown argument; allowed: {', '.join(plan)}")
            plan[key] = value
        self.holder = plan["holder"]
        self.busy_s, self.block_s = seconds(plan["busy"]), seconds(plan["block"])
        self.turns_s, self.blocked_s = [], 0.0
        self.timer = None
        if float(plan["rate"]) > 0:
            interval = 1 / float(plan["rate"])
            self.timer = h.timer_watcher_create(interval, self.on_beat, repeat=interval)
            self.timer.start()

    def on_beat(self, handle, watcher, revents, args):
        start = now = time.monotonic()
        while self.busy_s > 0 and now - start < self.busy_s:
            now = time.monotonic()
        self.turns_s.append(now - start)
        if self.block_s > 0:
            start = time.monotonic()
            handle.rpc(f"{self.holder}.hold", {"seconds": self.block_s}).get()
            self.blocked_s += time.monotonic() - start

    @request_handler("stats-get")
    def stats_get(self, msg):
        turns = sorted(self.turns_s)
        quantile = lambda q: turns[min(len(turns) - 1, int(q * len(turns)))] if turns else 0.0
        self.handle.respond(
            msg,
            {
                "wakeups": len(turns),
                "busy_s": sum(turns),
                "busy_p99_s": quantile(0.99),
                "busy_max_s": quantile(1.0),
                "blocked_s": self.blocked_s,
                "spun_s": 0.0,
                "errors": 0,
            },
        )
