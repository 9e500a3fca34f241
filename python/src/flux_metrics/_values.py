"""What one series has gained since the last push, and how a push says it (stats-core's docs/push.md)."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

SERIES_MAX = 10_000
"""Series that one handle keeps."""

NAME_MAX = 200
TAGS_MAX = 16
TAG_MAX = 200
MEMBER_MAX = 200
MEMBERS_MAX = 10_000
"""Different members that a set takes in one period."""

VALUE_MAX = 1e27
SAMPLE_MAX = 1 << 63
INTEGER_MAX = 1 << 53
"""Integers beyond this are written as digits: readers of JSON keep doubles."""

RESERVED = ("modules.", "broker.", "stats-agg.", "jobs.", "resources.", "overlay.", "guests.")
NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)

Key = Tuple[str, str, Tuple[Tuple[str, str], ...]]
"""Type, name and tags of a series."""


def check_name(name: str) -> str:
    """The name, if it may be used."""
    if not isinstance(name, str) or len(name) > NAME_MAX or not NAME.fullmatch(name):
        raise ValueError(
            f"bad name {name!r:.60}: expected 1 to {NAME_MAX} of A-Z a-z 0-9 _ - . with no empty part between dots"
        )
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r}: names that begin with {name.split('.')[0]}. are the service's own")
    return name


def check_tags(tags: Optional[Mapping[str, str]]) -> Tuple[Tuple[str, str], ...]:
    """The tags, sorted, if they may be used."""
    if not tags:
        return ()

    def valid(text: Any) -> bool:
        return isinstance(text, str) and 0 < len(text.encode()) <= TAG_MAX and text.isprintable()

    if len(tags) > TAGS_MAX or not all(valid(key) and valid(value) for key, value in tags.items()):
        raise ValueError(
            f"bad tags {tags!r:.60}: expected at most {TAGS_MAX}, each key and value a printable text of 1 to "
            f"{TAG_MAX} bytes"
        )
    return tuple(sorted(tags.items()))


def check_number(value: float) -> float:
    """The value, if it is a number that can be kept."""
    if not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > VALUE_MAX:
        raise ValueError(f"{value!r:.60}: expected a finite number up to {VALUE_MAX:g}")
    return value


def bucket(sample: int) -> int:
    """The bucket of a sample: itself below 128; above, 64 buckets for each doubling."""
    if sample < 128:
        return sample
    exponent = sample.bit_length() - 1
    return 128 + 64 * (exponent - 7) + ((sample >> (exponent - 6)) & 63)


def whole(number: int) -> Any:
    """A whole number as it is written."""
    return number if abs(number) <= INTEGER_MAX else str(number)


class Counter:
    """A counter's gain."""

    def __init__(self) -> None:
        self.gained: float = 0

    def add(self, n: float) -> None:
        self.gained += n

    def take(self, _now: float, _stale: Optional[float]) -> Optional[Dict[str, Any]]:
        gained, self.gained = self.gained, 0
        if not gained:
            return None
        return {"value": whole(gained) if isinstance(gained, int) else gained}


class Gauge:
    """A gauge's change."""

    def __init__(self) -> None:
        self.value: Optional[float] = None
        self.change: float = 0
        self.pushed: Optional[float] = None
        self.last: Optional[float] = None

    def set(self, value: float) -> None:
        self.value, self.change = value, 0

    def add(self, by: float) -> None:
        if self.value is None:
            self.change += by
        else:
            self.value += by

    def take(self, now: float, stale: Optional[float]) -> Optional[Dict[str, Any]]:
        due = stale is not None and self.pushed is not None and self.pushed <= stale
        value, change = self.value, self.change
        self.value, self.change = None, 0
        said: Dict[str, Any]
        if value is not None and value != self.last:
            self.last = value
            said = {"value": value}
        elif change:
            self.last = None if self.last is None else self.last + change
            said = {"add": change}
        elif due:
            # What is about to expire is said again.
            said = {"add": 0} if self.last is None else {"value": self.last}
        else:
            return None
        self.pushed = now
        return said


class Samples:
    """Samples, as whole numbers: their number by bucket, sums and extremes."""

    def __init__(self) -> None:
        self.buckets: Dict[int, int] = {}
        self.sum = 0
        self.squares = 0
        self.min = 0
        self.max = 0

    def add(self, sample: int) -> None:
        if not 0 <= sample < SAMPLE_MAX:
            raise ValueError("expected a number from 0, up to 9e9 (of a timer: seconds) or 9e12 (of a histogram)")
        self.min = min(self.min, sample) if self.buckets else sample
        self.max = max(self.max, sample)
        at = bucket(sample)
        self.buckets[at] = self.buckets.get(at, 0) + 1
        self.sum += sample
        self.squares += sample * sample

    def take(self, _now: float, _stale: Optional[float]) -> Optional[Dict[str, Any]]:
        if not self.buckets:
            return None
        sketch = {
            "sum": whole(self.sum),
            "squares": whole(self.squares),
            "min": whole(self.min),
            "max": whole(self.max),
            "buckets": [[at, times] for at, times in sorted(self.buckets.items())],
        }
        self.__init__()  # type: ignore[misc]
        return {"sketch": sketch}


class Members:
    """The members that a set was given."""

    def __init__(self) -> None:
        self.members: Set[str] = set()

    def add(self, member: str) -> bool:
        """False: it cannot be kept."""
        if len(self.members) >= MEMBERS_MAX and member not in self.members:
            return False
        self.members.add(member)
        return True

    def take(self, _now: float, _stale: Optional[float]) -> Optional[Dict[str, Any]]:
        if not self.members:
            return None
        members: List[str] = sorted(self.members)
        self.members = set()
        return {"members": members}
