"""The package without an instance: a handle that is not Flux's takes pushes, or does not."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import flux_metrics
from flux_metrics import _sending
from flux_metrics._values import Samples, bucket


class Future:
    def __init__(self, outcome):
        self.outcome = outcome

    def wait_for(self, _seconds):
        if self.outcome is None:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

    def get(self):
        if isinstance(self.outcome, OSError):
            raise self.outcome
        return self.outcome


class Handle:
    """Takes pushes as stats-agg does: each number once."""

    def __init__(self):
        self.tls = threading.local()
        self.fails_with = None
        self.answers = True
        self.pushes = []
        self.attempts = 0
        self.logged = []

    def attr_get(self, name):
        assert name == "rank"
        return "3"

    def log(self, level, text):
        self.logged.append((level, text))

    def rpc(self, topic, payload, nodeid):
        assert (topic, nodeid) == ("stats-agg.push", 3)
        payload = json.loads(json.dumps(payload))
        self.attempts += 1
        if self.fails_with is not None:
            return Future(OSError(self.fails_with, os.strerror(self.fails_with)))
        if not self.pushes or payload["seq"] > self.pushes[-1]["seq"]:
            self.pushes.append(payload)
        return Future({"version": 1, "period": 2.0, "ttl": 600.0, "refused": []} if self.answers else None)

    def metrics(self):
        return [metric for push in self.pushes for metric in push["metrics"]]


class Counting(unittest.TestCase):
    def setUp(self):
        self.handle = Handle()
        self.metrics = flux_metrics.Metrics.of(self.handle)
        self.addCleanup(self.metrics.close)

    def flushed(self):
        self.metrics.flush()
        found = {(metric["type"], metric["name"]): metric for metric in self.handle.metrics()}
        self.handle.pushes[:-1] = []
        return found

    def test_every_type_is_said_as_documented(self):
        self.metrics.count("a.count", 2, tags={"queue": "batch"})
        self.metrics.count("a.count", 3, tags={"queue": "batch"})
        self.metrics.count("a.fraction", 0.5)
        self.metrics.count("a.far", 1 << 60)
        self.metrics.gauge("a.gauge", 7.5)
        self.metrics.gauge_add("a.change", -1)
        self.metrics.record("a.time_s", 0.5)
        self.metrics.histogram("a.bytes", 4096)
        self.metrics.member("a.users", "alice")
        found = self.flushed()
        count = {"name": "a.count", "tags": {"queue": "batch"}, "type": "counter", "value": 5}
        self.assertEqual(found["counter", "a.count"], count)
        self.assertEqual(found["counter", "a.fraction"]["value"], 0.5)
        self.assertEqual(found["counter", "a.far"]["value"], str(1 << 60))
        self.assertEqual(found["gauge", "a.gauge"]["value"], 7.5)
        self.assertEqual(found["gauge", "a.change"]["add"], -1)
        sketch = {"sum": 500000000, "squares": "250000000000000000", "min": 500000000, "max": 500000000}
        self.assertEqual(found["timer", "a.time_s"]["sketch"], {**sketch, "buckets": [[bucket(500000000), 1]]})
        self.assertEqual(found["histogram", "a.bytes"]["sketch"]["sum"], 4096_000_000)
        self.assertEqual(found["set", "a.users"]["members"], ["alice"])

    def test_nothing_is_sent_when_nothing_changed(self):
        self.metrics.count("a", 1)
        self.metrics.gauge("g", 1)
        self.metrics.flush()
        self.metrics.gauge("g", 1)
        self.metrics.count("a", 0)
        self.metrics.flush()
        self.assertEqual(self.handle.attempts, 1)

    def test_what_makes_no_sense_is_a_value_error(self):
        nan, inf = float("nan"), float("inf")
        for wrong in (
            lambda: self.metrics.count(""),
            lambda: self.metrics.count("a..b"),
            lambda: self.metrics.count("ä"),
            lambda: self.metrics.count("x" * 201),
            lambda: self.metrics.count(None),
            lambda: self.metrics.count("modules.kvs.mine"),
            lambda: self.metrics.count("a", nan),
            lambda: self.metrics.count("a", "1"),
            lambda: self.metrics.count("a", tags={"": "v"}),
            lambda: self.metrics.count("a", tags={"k": "v" * 201}),
            lambda: self.metrics.count("a", tags={str(n): "v" for n in range(17)}),
            lambda: self.metrics.gauge("a", inf),
            lambda: self.metrics.gauge_add("a", -inf),
            lambda: self.metrics.record("a", -1e-9),
            lambda: self.metrics.record("a", 1e12),
            lambda: self.metrics.histogram("a", -1),
            lambda: self.metrics.histogram("a", 1e13),
            lambda: self.metrics.member("a", ""),
            lambda: self.metrics.member("a", 5),
            lambda: self.metrics.timed("modules.x"),
            lambda: self.metrics.timing("a b").__enter__(),
        ):
            with self.assertRaises(ValueError):
                wrong()
        self.metrics.flush()
        self.assertEqual(self.handle.metrics(), [])

    def test_series_and_members_are_bounded(self):
        with mock.patch.object(flux_metrics._metrics, "SERIES_MAX", 3):
            for number in range(3):
                self.metrics.count(f"a{number}")
            with self.assertRaisesRegex(ValueError, "keeps 3 series"):
                self.metrics.count("b")
            self.metrics.count("a0")
        with mock.patch.object(flux_metrics._values, "MEMBERS_MAX", 2):
            for member in ("x", "y", "x", "z"):
                self.metrics.member("a.set", member)
        self.metrics.flush()
        self.assertEqual(self.handle.pushes[0]["dropped"], 1)

    def test_many_metrics_are_several_pushes(self):
        for number in range(2500):
            self.metrics.count(f"a{number}")
        self.metrics.flush()
        self.assertEqual([len(push["metrics"]) for push in self.handle.pushes], [1000, 1000, 500])
        self.assertEqual([push["seq"] for push in self.handle.pushes], [1, 2, 3])

    def test_decorators_and_contexts(self):
        @self.metrics.timed("a.sync_s")
        @self.metrics.counted("a.calls")
        def double(x):
            """Doubles."""
            return 2 * x

        @self.metrics.timed("a.async_s")
        async def later():
            await asyncio.sleep(0.02)
            return 5

        self.assertEqual((double(2), double.__name__, double.__doc__), (4, "double", "Doubles."))
        self.assertEqual(asyncio.run(later()), 5)
        with self.assertRaises(KeyError), self.metrics.timing("a.block_s"):
            raise KeyError
        found = self.flushed()
        self.assertEqual(found["counter", "a.calls"]["value"], 1)
        self.assertGreaterEqual(found["timer", "a.async_s"]["sketch"]["sum"], 20_000_000)
        self.assertEqual(len(found["timer", "a.block_s"]["sketch"]["buckets"]), 1)


class Sending(unittest.TestCase):
    def setUp(self):
        self.handle = Handle()
        self.metrics = flux_metrics.Metrics.of(self.handle)
        self.addCleanup(self.metrics.close)

    def test_one_for_each_handle_until_it_is_closed(self):
        self.assertIs(flux_metrics.Metrics.of(self.handle), self.metrics)
        self.metrics.close()
        self.metrics.close()
        self.assertIsNot(flux_metrics.Metrics.of(self.handle), self.metrics)

    def test_what_is_not_taken_is_kept_and_sent_again_with_its_number(self):
        self.handle.fails_with = errno.ENOSYS
        self.metrics.count("a", 1)
        for _ in range(3):
            with self.assertRaises(OSError) as raised:
                self.metrics.flush()
            self.assertEqual(raised.exception.errno, errno.ENOSYS)
            self.metrics.count("a", 1)
        self.assertEqual(len(self.handle.logged), 1, "said once")
        self.handle.fails_with = None
        self.metrics.flush()
        values = [metric["value"] for metric in self.handle.metrics()]
        self.assertEqual((values, self.handle.attempts), ([1, 3], 5))

    def test_a_lost_answer_leads_to_a_repeat_that_counts_once(self):
        self.handle.answers = False
        self.metrics.count("a", 5)
        with self.assertRaises(OSError):
            self.metrics.flush(0.01)
        self.handle.answers = True
        self.metrics.flush()
        self.assertEqual([metric["value"] for metric in self.handle.metrics()], [5])
        self.assertEqual(self.handle.attempts, 2)

    def test_what_is_refused_is_not_sent_again(self):
        self.handle.fails_with = errno.EPERM
        self.metrics.count("a", 1)
        self.metrics.flush()
        self.handle.fails_with = None
        self.metrics.flush()
        self.assertEqual(self.handle.attempts, 1)
        self.assertIn("refused", self.handle.logged[0][1])

    def test_calls_send_once_a_period(self):
        clock = time.monotonic()
        with mock.patch.object(_sending.time, "monotonic", lambda: clock):
            for _ in range(1000):
                self.metrics.count("a", 1)
                clock += 0.01
        self.assertEqual(self.handle.attempts, 4)

    def test_a_gauge_is_said_again_before_it_expires(self):
        clock = time.monotonic()
        with mock.patch.object(_sending.time, "monotonic", lambda: clock):
            self.metrics.gauge("g", 5)
            self.metrics.flush()
            clock += 200
            self.metrics.flush()
            self.assertEqual(self.handle.attempts, 1)
            clock += 200
            self.metrics.flush()
        self.assertEqual([metric["value"] for metric in self.handle.metrics()], [5, 5])

    def test_an_event_loop_is_never_waited_in(self):
        self.handle.answers = False

        async def main():
            self.metrics._sender._due = 0
            start = time.monotonic()
            for _ in range(100):
                self.metrics.count("a", 1)
            spent = time.monotonic() - start
            await asyncio.sleep(0.05)
            self.handle.answers = True
            await self.metrics.close_async()
            return spent

        self.assertLess(asyncio.run(main()), 0.05)
        self.assertEqual(sum(metric["value"] for metric in self.handle.metrics()), 100)

    def test_threads_may_share_metrics(self):
        threads = [
            threading.Thread(target=lambda: [self.metrics.count("a", 1) for _ in range(2000)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.metrics.flush()
        self.assertEqual(sum(metric["value"] for metric in self.handle.metrics()), 8000)


class Values(unittest.TestCase):
    def test_buckets_follow_each_other(self):
        ends = [(64 + cut) << (bits - 6) for bits in range(7, 63) for cut in range(64)]
        self.assertTrue(all(bucket(low) == bucket(low - 1) + 1 for low in ends))
        self.assertEqual(bucket((1 << 64) - 1), 128 + 57 * 64 - 1)

    def test_a_sample_beyond_what_adds_up_is_refused(self):
        with self.assertRaises(ValueError):
            Samples().add(1 << 63)


class Without(unittest.TestCase):
    """No instance, and no bindings."""

    def run_python(self, code, **environment):
        source = Path(flux_metrics.__file__).parent.parent
        environment = {**os.environ, "PYTHONPATH": str(source), **environment}
        environment.pop("FLUX_URI", None)
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    def test_no_instance_is_said_clearly(self):
        code = "import sys; sys.modules['flux'] = None\nimport flux_metrics; flux_metrics.connect()"
        said = self.run_python(code).stderr
        self.assertIn("NoInstance: no Flux bindings for this Python", said)
        self.assertIn("connect(optional=True)", said)

    def test_nothing_is_counted_where_that_is_asked_for(self):
        code = """import sys; sys.modules['flux'] = None
import flux_metrics
with flux_metrics.connect(optional=True) as metrics:
    metrics.count('a', 2)
    with metrics.timing('b_s'):
        pass
"""
        done = self.run_python(code)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_dump_needs_no_instance(self):
        code = """import sys; sys.modules['flux'] = None
import flux_metrics
metrics = flux_metrics.connect(optional=True)
metrics.count('a', 2, tags={'k': 'v'}); metrics.record('b_s', 0.25); metrics.record('b_s', 0.75)
metrics.gauge('g', 5); metrics.gauge_add('g', 1); metrics.member('s', 'x')
"""
        said = self.run_python(code, FLUX_METRICS_DUMP="stderr").stderr
        lines = [
            "a{k=v} counter total=2",
            "b_s timer count=2 sum=1.0 min=0.25 max=0.75",
            "g gauge value=6",
            "s set members=1",
        ]
        self.assertEqual(said.splitlines(), lines)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "dump"
            for _ in range(2):
                self.run_python(code, FLUX_METRICS_DUMP=f"json:{path}")
            dumps = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual(len(dumps), 2)
        counter = {"name": "a", "tags": {"k": "v"}, "type": "counter", "total": 2}
        self.assertEqual(dumps[0]["series"][0], counter)


if __name__ == "__main__":
    unittest.main()
