"""``FLUX_METRICS_DUMP``: what a handle counted, printed when it closes."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Optional

from ._values import Key

VARIABLE = "FLUX_METRICS_DUMP"


class Dump:
    """Where to, and what there is so far."""

    def __init__(self, target: str) -> None:
        self._json = target.startswith("json:")
        self._target = target[len("json:") :] if self._json else target
        self._totals: Dict[Key, Dict[str, Any]] = {}

    @classmethod
    def from_environment(cls) -> Optional["Dump"]:
        """None: nobody asks for it."""
        target = os.environ.get(VARIABLE)
        return cls(target) if target else None

    def add(self, key: Key, said: Dict[str, Any]) -> None:
        """What a push says of a series."""
        kind = key[0]
        total = self._totals.setdefault(key, {})
        if kind == "counter":
            total["total"] = total.get("total", 0) + number(said["value"])
        elif kind == "gauge" and "value" in said:
            total["value"] = said["value"]
            total.pop("change", None)
        elif kind == "gauge":
            shown = "value" if "value" in total else "change"
            total[shown] = total.get(shown, 0) + said["add"]
        elif kind == "set":
            total.setdefault("_members", set()).update(said["members"])
            total["members"] = len(total["_members"])
        else:
            one = 1e9 if kind == "timer" else 1e6
            sketch = said["sketch"]
            low, high = number(sketch["min"]) / one, number(sketch["max"]) / one
            total["count"] = total.get("count", 0) + sum(times for _, times in sketch["buckets"])
            total["sum"] = total.get("sum", 0) + number(sketch["sum"]) / one
            total["min"] = min(total.get("min", low), low)
            total["max"] = max(total.get("max", high), high)

    def _series(self) -> List[Dict[str, Any]]:
        return [
            {
                "name": name,
                "tags": dict(tags),
                "type": kind,
                **{key: value for key, value in total.items() if not key.startswith("_")},
            }
            for (kind, name, tags), total in sorted(self._totals.items(), key=lambda item: item[0][1:])
        ]

    def _text(self) -> str:
        lines = []
        for series in self._series():
            name, tags, kind = series.pop("name"), series.pop("tags"), series.pop("type")
            shown = "{" + ",".join(f"{key}={value}" for key, value in tags.items()) + "}" if tags else ""
            numbers = " ".join(f"{key}={value}" for key, value in series.items())
            lines.append(f"{name}{shown} {kind} {numbers}\n")
        return "".join(lines)

    def write(self) -> None:
        """Writes it, at once, so that several processes may have one file."""
        if not self._totals:
            return
        text = json.dumps({"version": 1, "series": self._series()}) + "\n" if self._json else self._text()
        if self._target == "stderr":
            sys.stderr.write(text)
            return
        try:
            with open(self._target, "ab", buffering=0) as file:
                file.write(text.encode())
        except OSError as error:
            sys.stderr.write(f"{VARIABLE}={self._target}: {error}\n")


def number(written: Any) -> Any:
    """A number as it was before it was written."""
    return int(written) if isinstance(written, str) else written
