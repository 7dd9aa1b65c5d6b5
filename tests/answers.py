"""Answers to the requests of a look: by a model's methods, or by the mirror's real answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, cast

from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.fact import Reading, Unknown
from zkmigrate.runbook.model.look import Request
from zkmigrate.topics.mirror.clients.answers import MirrorAnswers
from zkmigrate.topics.mirror.questions import (
    BothEnds,
    ClusterAt,
    CompareCommits,
    CompareRecords,
    FindGranted,
    FindGroupReads,
    Granted,
    GroupPair,
    GroupReads,
    MirrorSurvey,
    Part,
    RangeCompared,
    ReadDirection,
    ReadMirrorEnds,
    SurveyMirror,
)
from zkmigrate.topics.mirror.rules.direction import Direction

T = TypeVar("T")


def answered(model: object, request: Request[T], skip: int = 0) -> T:
    """Call the model's method with the name of the real one. It takes the request's fields but the first
    ``skip``."""
    name = request.answered_by.rpartition(".")[2]
    values = [getattr(request, field.name) for field in fields(cast(Any, request))]
    answer: Callable[..., T] = getattr(model, name)
    return answer(*values[skip:])


class Answering:
    """A look whose methods are named as the real answers, and take the fields of a request."""

    def ask(self, request: Request[T]) -> T:
        return answered(self, request)

    def program(self, channel: str, host: str, *words: str) -> Reading[str]:
        return Unknown("failed", f"{host}: the inventory names no {channel}, to be asked for {words}")


class Mirrored:
    """Two clusters, asked as a run asks about what is mirrored."""

    def __init__(self, source: ClusterAt, target: ClusterAt) -> None:
        self._ends = source, target
        nobody = cast(Any, None)
        self._answers = MirrorAnswers(nobody, nobody)
        self.close = self._answers.close

    def survey(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[MirrorSurvey]:
        return self._answers.survey(SurveyMirror(*self._ends, topics, groups))

    def ends(self, topics: Sequence[str]) -> Reading[Mapping[Part, BothEnds]]:
        return self._answers.ends(ReadMirrorEnds(*self._ends, topics))

    def direction(self, topics: Sequence[str]) -> Reading[Direction]:
        return self._answers.direction(ReadDirection(*self._ends, topics))

    def commits(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[Mapping[str, GroupPair]]:
        return self._answers.commits(CompareCommits(*self._ends, topics, groups))

    def granted(self, acls: Sequence[Acl]) -> Reading[Granted]:
        return self._answers.granted(FindGranted(*self._ends, acls))

    def reads(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[Mapping[str, GroupReads]]:
        return self._answers.reads(FindGroupReads(*self._ends, topics, groups))

    def differences(
        self, ranges: Mapping[Part, tuple[int, int]]
    ) -> Reading[Mapping[Part, Reading[RangeCompared]]]:
        return self._answers.differences(CompareRecords(*self._ends, ranges))
