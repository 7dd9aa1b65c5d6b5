"""Check the fields and values of orders, and of the gateway's record on disk."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from zkmigrate.topics.gateway.rules.hold import MOST_TTL_MS, Order

MOST_FENCING = 10**15 - 1
"""The highest fencing number that zkm-host accepts."""
_MOST_FLIPS, _MOST_FLIPPED = 10**9, 1e11

_Fencing = Annotated[int, Field(ge=0, le=MOST_FENCING)]
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
_NoName = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$", max_length=63)]
_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/+-]*$", max_length=200)]
_NoId = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9._:@/+-]*)?$", max_length=200)]
_Verb = Annotated[str, StringConstraints(pattern=r"^[a-z]+$", max_length=20)]


class FormError(ValueError):
    """Raised when fields are missing, unknown, or have invalid values. The text names the fields."""


class Strict(BaseModel):
    """A pydantic model that does not convert values.

    It refuses a text in place of a number and a number in place of a bool. It also refuses NaN and infinity.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Order(Strict):
    fencing: _Fencing
    id: _Id
    verb: _Verb
    app: _Name
    to: _NoName = ""
    hold: _NoId = ""
    ttl_ms: Annotated[int, Field(ge=0, le=MOST_TTL_MS)] = 0


class _Routed(Strict):
    route: _Name
    staged: _NoName
    sealed: bool
    flipped: Annotated[float, Field(ge=0, le=_MOST_FLIPPED)]
    flips: Annotated[int, Field(ge=0, le=_MOST_FLIPS)] = 0


class KeptApp(_Routed):
    """The recorded state of an application.

    flipped: the time of its last switch, in seconds since the epoch.
    """

    fencing: _Fencing


class Kept(Strict):
    """The content of the gateway's record.

    done: by operation id, a pair of the order as text and the gateway's answer. apps: the state of each
    application by name.
    """

    version: Literal[2]
    done: dict[str, Annotated[list[str], Field(min_length=2, max_length=2)]]
    apps: dict[_Name, KeptApp]


class _Former(Strict):
    """The content of a record of version 1, which has a single fencing number for all applications."""

    version: Literal[1]
    fencing: _Fencing
    done: dict[str, Annotated[list[str], Field(min_length=2, max_length=2)]]
    apps: dict[_Name, _Routed]


_T = TypeVar("_T", bound=BaseModel)


def order(fields: object) -> Order:
    """Return an order with the given fields. Raises FormError if the fields are not valid."""
    return Order(**checked(_Order, fields).model_dump())


def record(fields: object) -> Kept:
    """Check the fields of a record of version 1 or 2, and return them as a record of version 2.

    The only fencing number of version 1 becomes the fencing number of each application. Raises FormError.
    """
    if not isinstance(fields, dict) or fields.get("version") != 1:
        return checked(Kept, fields)
    former = checked(_Former, fields)
    apps = {name: KeptApp(**app.model_dump(), fencing=former.fencing) for name, app in former.apps.items()}
    return Kept(version=2, done=former.done, apps=apps)


def checked(form: type[_T], fields: object) -> _T:
    """Return the fields as a model of the given class. Raises FormError, which names the first mistakes."""
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)
        more = f"; and {len(wrong) - _TOLD} more" if len(wrong) > _TOLD else ""
        raise FormError("; ".join(map(_mistake, wrong[:_TOLD])) + more) from None


_TOLD = 5


def _mistake(error: Any) -> str:
    place = ".".join(str(part)[:80] for part in error["loc"] if part != "[key]") or "the whole text"
    reason = {"extra_forbidden": "this field is unknown", "missing": "this field is missing"}.get(
        error["type"]
    )
    return f"{place}: {reason or error['msg']}" + ("" if reason else f" (seen {_shorten(error['input'])})")


def _shorten(value: object) -> str:
    """Return the beginning of a value as text.

    Integers need a case of their own, because Python refuses to print integers of thousands of digits.
    """
    try:
        return repr(value)[:60]
    except ValueError:
        return "a number of thousands of digits"
