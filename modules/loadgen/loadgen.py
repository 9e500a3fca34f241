"""loadgen, as a broker module in Python (flux-core 0.88 and later): a module of known behaviour, in a process of its own.

Takes the arguments rate=, busy=, block=, every=, holder= and spin= of loadgen.so, with times in the units s, ms and us,
and answers NAME.stats-get, NAME.turns and NAME.stop as it does.
"""

import time

from flux.brokermod import BrokerModule, request_handler

UNITS = (("ms", 1e-3), ("us", 1e-6), ("s", 1.0))
SCHEDSTAT = "/proc/thread-self/schedstat"


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


def queued():
    """The time that this thread has waited for a processor; 0 where the kernel does not tell."""
    try:
        with open(SCHEDSTAT, encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except OSError:
        return 0.0


class Loadgen(BrokerModule):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        plan = {"rate": "0", "busy": "0s", "block": "0s", "every": "1", "holder": "holder", "spin": "0s"}
        for arg in args:
            key, _, value = arg.partition("=")
            if key not in plan:
                raise ValueError(f"{arg}: unknown argument; allowed: {', '.join(plan)}")
            plan[key] = value
        self.loaded = time.monotonic()
        self.holder, self.every = plan["holder"], max(1, int(plan["every"]))
        self.busy_s, self.block_s, self.spin_s = (seconds(plan[key]) for key in ("busy", "block", "spin"))
        # The work of each wakeup, at least and at most.
        self.turns_s, self.calls, self.busy_sum_s, self.spun_s = [], 0, 0.0, 0.0
        self.blocked_s, self.waited_s, self.queued_s = 0.0, 0.0, 0.0
        self.timers = []
        if float(plan["rate"]) > 0:
            interval = 1 / float(plan["rate"])
            self.timers.append(h.timer_watcher_create(interval, self.on_beat, repeat=interval))
        if self.spin_s > 0:
            self.timers.append(h.timer_watcher_create(0.0, self.on_spin))
        for timer in self.timers:
            timer.start()

    def on_beat(self, handle, watcher, revents, args):
        least = most = work(self.busy_s)
        self.busy_sum_s += least
        if self.block_s > 0 and (len(self.turns_s) + 1) % self.every == 0:
            start, cpu_s, queued_s = time.monotonic(), time.thread_time(), queued()
            handle.rpc(f"{self.holder}.hold", {"seconds": self.block_s}).get()
            queued_s, cpu_s = queued() - queued_s, time.thread_time() - cpu_s
            took_s = time.monotonic() - start
            self.calls += 1
            self.blocked_s += took_s
            self.waited_s += max(0.0, took_s - cpu_s - queued_s)
            self.queued_s += queued_s
            least, most = least + cpu_s, least + cpu_s + queued_s
        self.turns_s.append((least, most))

    def on_spin(self, handle, watcher, revents, args):
        self.spun_s += work(self.spin_s)

    def done(self):
        return {
            "wakeups": len(self.turns_s),
            "busy_s": self.busy_sum_s,
            "spun_s": self.spun_s,
            "calls": self.calls,
            "blocked_s": self.blocked_s,
            "waited_s": self.waited_s,
            "queued_s": self.queued_s,
            "cpu_s": time.thread_time(),
            "runq_wait_s": queued(),
            "age_s": time.monotonic() - self.loaded,
            "pushed": 0,
            "errors": 0,
        }

    @request_handler("stats-get")
    def stats_get(self, msg):
        self.handle.respond(msg, self.done())

    @request_handler("turns")
    def on_turns(self, msg):
        least, most = (sorted(turn[at] for turn in self.turns_s) for at in (0, 1))
        self.handle.respond(msg, {"least_s": least, "most_s": most})

    @request_handler("stop")
    def on_stop(self, msg):
        for timer in self.timers:
            timer.stop()
        self.handle.respond(msg, self.done())
