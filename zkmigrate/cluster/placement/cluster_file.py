"""``cluster.json``: a cluster as a file, for plans that query no broker.

::

    {"brokers": {"1001": {"rack": "a", "storage_free": BYTES, "new": false, "host": "b1",
                          "log_dirs": {"/data1": {"free": BYTES, "total": BYTES}}}},
     "partitions": [{"topic": "t", "partition": 0, "replicas": [1001], "size": BYTES, "rate": BYTES_PER_S,
                     "log_dirs": ["/data1"]}]}

Needed are ``brokers`` with ``storage_free`` or ``log_dirs``, and ``partitions`` with ``topic``, ``partition``
and ``replicas``. A broker that only ``replicas`` names is gone.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from zkmigrate import json_text
from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir, Partition
from zkmigrate.errors import UsageError

_MOST_ID = 2**31 - 1
_MOST_BYTES = 2**63 - 1
_TOLD = 10
"""The largest number of mistakes that an error lists."""

_SEEN_CHARS = 60

_PATH = re.compile(r"(/[^/\n]+)+")
"""The form of a log directory as brokers report it.

Kafka's tool notices a wrong path only after it began to move partitions.
"""


def _whole_number(value: Any) -> Any:
    """Return a number such as ``9e11`` as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Id = Annotated[int, Strict(), Field(ge=0, le=_MOST_ID)]
_Bytes = Annotated[int, BeforeValidator(_whole_number), Strict(), Field(ge=0, le=_MOST_BYTES)]
TOPIC = r"^[a-zA-Z0-9._-]{1,249}$"
TOPIC_NEEDED = "a name of 1 to 249 characters of a-z A-Z 0-9 . _ -"
_Topic = Annotated[str, Strict(), Field(pattern=TOPIC)]
_Name = Annotated[str, Strict(), Field(max_length=1000)]

_NEEDED = {
    "": 'an object with "brokers" and "partitions"',
    "brokers": "an object: the brokers by their ids",
    "partitions": "a list of partitions",
    "topic": TOPIC_NEEDED,
    "partition": f"a whole number from 0 to {_MOST_ID}",
    "replicas": f"a list of broker ids, whole numbers from 0 to {_MOST_ID}",
    "size": f"whole bytes as a number from 0 to {_MOST_BYTES}",
    "rate": "bytes per second as a number from 0 on",
    "storage_free": f"whole bytes as a number from 0 to {_MOST_BYTES}",
    "free": f"whole bytes as a number from 0 to {_MOST_BYTES}",
    "total": f"whole bytes as a number from 0 to {_MOST_BYTES}",
    "rack": "a text of at most 1000 characters",
    "host": "a text of at most 1000 characters",
    "new": "true or false",
    "log_dirs": "of a broker: directories by path, each with free bytes; of a partition: a path per replica",
}
"""The description of a valid value, by key."""


class ClusterFileError(UsageError):
    """An error in a cluster file: one line per mistake, with its place, what was seen and what is needed."""


@dataclass(slots=True)
class _Dir:
    __pydantic_config__ = ConfigDict(extra="forbid")

    free: _Bytes
    total: _Bytes = 0


@dataclass(slots=True)
class _Broker:
    __pydantic_config__ = ConfigDict(extra="forbid")

    storage_free: _Bytes | None = None
    rack: _Name | None = None
    new: StrictBool = False
    host: _Name = ""
    log_dirs: dict[StrictStr, _Dir] = field(default_factory=dict)


@dataclass(slots=True)
class _Partition:
    __pydantic_config__ = ConfigDict(extra="forbid")

    topic: _Topic
    partition: _Id
    replicas: tuple[_Id, ...]
    size: _Bytes | None = None
    rate: Annotated[float, Strict(), Field(ge=0, le=_MOST_BYTES, allow_inf_nan=False)] | None = None
    log_dirs: tuple[StrictStr, ...] = ()


@dataclass(slots=True)
class _File:
    __pydantic_config__ = ConfigDict(extra="forbid")

    brokers: Annotated[dict[StrictStr, _Broker], Field(min_length=1)]
    partitions: Annotated[list[_Partition], Field(min_length=1)]


_ADAPTER = TypeAdapter(_File)
_BROKERS = TypeAdapter(dict[StrictStr, _Broker])


def parse(content: bytes, origin: str) -> Cluster:
    """Return the cluster in a file's content. origin: the file's name for errors. Raises ClusterFileError."""
    return of(load_json(content, origin, f"JSON, {_NEEDED['']}"), origin)


def of(raw: Any, origin: str) -> Cluster:
    """Return the cluster in values parsed from JSON.

    origin: the file's name for errors. Raises ClusterFileError.
    """
    try:
        read = _ADAPTER.validate_python(raw)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False)
        raise ClusterFileError(mistakes(origin, (_explain_mistake(raw, one) for one in told))) from None
    del raw
    wrong = list(islice(_faults(read), _TOLD + 1))
    if wrong:
        raise ClusterFileError(mistakes(origin, wrong))
    return Cluster.of(
        (_broker(int(id_), broker) for id_, broker in read.brokers.items()),
        (
            Partition(one.topic, one.partition, one.replicas, one.size, one.rate, one.log_dirs)
            for one in read.partitions
        ),
    )


def text(cluster: Cluster) -> str:
    """Return the content of a file that ``parse`` reads as this cluster."""
    brokers = {
        str(one.id): {
            "rack": one.rack,
            "host": one.host,
            "storage_free": one.free,
            "new": one.new,
            "log_dirs": {each.path: {"free": each.free, "total": each.total} for each in one.dirs},
        }
        for one in cluster.brokers.values()
    }
    known = (
        {
            "topic": one.topic,
            "partition": one.number,
            "replicas": one.replicas,
            "size": one.size,
            "rate": one.rate,
            "log_dirs": one.dirs,
        }
        for one in cluster.partitions
    )
    partitions = [{key: value for key, value in one.items() if value is not None} for one in known]
    return json.dumps({"brokers": brokers, "partitions": partitions}, indent=1) + "\n"


def brokers(raw: Any, origin: str) -> tuple[Broker, ...]:
    """Return only the brokers of a cluster file, from values parsed from JSON and keyed by broker id.

    origin: the name of the source for errors. Raises ClusterFileError.
    """
    try:
        read = _BROKERS.validate_python(raw)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False)
        for one in told:
            one["loc"] = ("brokers", *one["loc"])
        raise ClusterFileError(
            mistakes(origin, (_explain_mistake({"brokers": raw}, one) for one in told))
        ) from None
    wrong = [fault for id_, broker in read.items() for fault in _broker_faults(id_, broker)]
    if wrong:
        raise ClusterFileError(mistakes(origin, wrong))
    return tuple(_broker(int(id_), broker) for id_, broker in read.items())


def load_json(content: bytes, origin: str, needed: str) -> Any:
    """Parse JSON, and refuse content whose meaning is unclear: a duplicate key in an object, or NaN.

    origin: the name of the source for errors. needed: a description of the expected content. Raises
    ClusterFileError.
    """
    needed = f"needed: {needed}"
    try:
        return json_text.loads(content)
    except json_text.Doubtful as error:
        raise ClusterFileError(f"{origin}: {error}") from None
    except json_text.TooDeep as error:
        raise ClusterFileError(f"{origin}: {error}; {needed}") from None
    except UnicodeDecodeError as error:
        raise ClusterFileError(f"{origin}: byte {error.start} is not UTF-8; {needed}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ClusterFileError(f"{origin}: {where}: {error.msg}; {needed}") from None
    except ValueError:  # Python refuses to parse numbers of thousands of digits
        raise ClusterFileError(f"{origin}: seen a number of more than 4300 digits; {needed}") from None


def _shorten(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SEEN_CHARS else f"{text[: _SEEN_CHARS - 1]}…"


def mistakes(origin: str, wrong: Iterable[str]) -> str:
    """Return the first mistakes of a file, a line each."""
    told = list(islice(wrong, _TOLD + 1))
    more = ["and more"] if len(told) > _TOLD else []
    return "\n".join(f"{origin}: {line}" for line in (*told[:_TOLD], *more))


def _explain_mistake(raw: Any, error: Any) -> str:
    """Describe a mistake that pydantic found. raw: the input, which shows the name of the partition."""
    loc = error["loc"]
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    if len(loc) > 1 and loc[0] == "partitions" and isinstance(raw["partitions"][loc[1]], dict):
        one = raw["partitions"][loc[1]]
        parts[1] += f" (topic {_shorten(one.get('topic'))}, partition {_shorten(one.get('partition'))})"
    place = "".join(parts).lstrip(".")
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{place}: unknown key; needed: only the keys of the format"
    seen = "nothing" if error["type"] == "missing" else _shorten(error["input"])
    last = loc[-1] if loc else ""
    held = next((part for part in reversed(loc[:-1]) if part in _ITEM), "")
    needed = _NEEDED[last] if last in _NEEDED else _ITEM[held]
    return f"{place or 'the file'}: seen {seen}; needed: {needed}"


_ITEM = {
    "brokers": "an object with storage_free or log_dirs",
    "partitions": "an object with topic, partition and replicas",
    "replicas": _NEEDED["replicas"],
    "log_dirs": _NEEDED["log_dirs"],
    "": _NEEDED[""],
}
"""The description of a valid list item or object, by the key that contains it."""


def _faults(read: _File) -> Iterator[str]:
    """Yield a description of each value that contradicts another one."""
    for text, broker in read.brokers.items():
        yield from _broker_faults(text, broker)
    numbers: dict[str, set[int]] = defaultdict(set)
    for at, one in enumerate(read.partitions):
        name = f"partitions[{at}] (topic {one.topic}, partition {one.partition})"
        if one.topic in (".", ".."):
            yield f"{name}.topic: seen {one.topic}; needed: a name other than . and .."
        if one.partition in numbers[one.topic]:
            yield f"{name}: seen a second time; needed: each partition once"
        numbers[one.topic].add(one.partition)
        if not one.replicas:
            yield f"{name}.replicas: seen []; needed: at least one broker id"
        if len(set(one.replicas)) != len(one.replicas):
            yield f"{name}.replicas: seen a broker twice in {list(one.replicas)}; needed: each broker once"
        yield from _dir_faults(name, one, read.brokers)
    for topic, seen in numbers.items():
        if len(seen) != max(seen) + 1:
            missing = next(number for number in range(len(seen)) if number not in seen)
            yield (
                f"topic {topic}: seen {len(seen)} partitions, the highest is {max(seen)}, and no partition "
                f"{missing}; needed: all of the topic, from 0 on"
            )


def _broker_faults(text: str, broker: _Broker) -> Iterator[str]:
    name = f"brokers.{text}"
    if not text.isascii() or not text.isdigit() or str(int(text[:11])) != text or int(text) > _MOST_ID:
        yield f"brokers: seen the id {_shorten(text)}; needed: a whole number from 0 to {_MOST_ID}, as a text"
    if broker.storage_free is None and not broker.log_dirs:
        yield f"{name}: seen no storage_free and no log_dirs; needed: one of them"
    free = sum(each.free for each in broker.log_dirs.values())
    if broker.log_dirs and broker.storage_free not in (None, free):
        yield (
            f"{name}.storage_free: seen {broker.storage_free}, its log_dirs have {free} free; "
            "needed: the same, or log_dirs alone"
        )
    for path, each in broker.log_dirs.items():
        if not _PATH.fullmatch(path):
            yield (
                f"{name}.log_dirs: seen {_shorten(path)}; needed: paths as Kafka reports them, such as /data1"
            )
        if each.total and each.free > each.total:
            yield f"{name}.log_dirs.{path}: seen {each.free} bytes free of {each.total}; needed: at most all"


def _dir_faults(name: str, one: _Partition, brokers: dict[str, _Broker]) -> Iterator[str]:
    if not one.log_dirs:
        return
    if len(one.log_dirs) != len(one.replicas):
        yield f"{name}.log_dirs: seen {len(one.log_dirs)} paths; needed: {len(one.replicas)}, as replicas"
        return
    for id_, path in zip(one.replicas, one.log_dirs, strict=True):
        broker = brokers.get(str(id_))
        if broker is not None and broker.log_dirs and path not in broker.log_dirs:
            yield f"{name}.log_dirs: seen {_shorten(path)}; needed: one of the log_dirs of broker {id_}"


def _broker(id_: int, read: _Broker) -> Broker:
    dirs = tuple(LogDir(path, each.free, each.total) for path, each in sorted(read.log_dirs.items()))
    free = sum(each.free for each in dirs) if read.storage_free is None else read.storage_free
    return Broker(id_, read.rack or "", free, read.new, dirs, read.host)
