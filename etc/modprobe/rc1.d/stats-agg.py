"""Loads stats-agg where the configuration has a table [stats-agg].

Last of all, and a failure is said only: statistics are no reason for an instance not to start. A module that modprobe
loads itself is one.
"""

import subprocess
import sys

from flux.modprobe import task


@task("stats-agg-start", needs_config=["stats-agg"], after=["*"])
def start(context):
    done = subprocess.run(["flux", "module", "load", "stats-agg"], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"stats-agg is not loaded: {done.stderr.strip()}", file=sys.stderr)
