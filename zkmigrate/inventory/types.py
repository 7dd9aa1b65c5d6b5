"""Define the types of the inventory's values, and the base classes of its mappings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from zkmigrate.errors import InventoryError

# No pattern below allows a blank, a quote or another character that a shell interprets. A command is words
# of such characters with single blanks between.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
Address = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*[0-9A-Za-z])?$", max_length=253)
]
RemotePath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/@%+-]*$", max_length=4096)]
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$", max_length=128)]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]*$", max_length=32)]
LocalPath = Annotated[str, StringConstraints(pattern=r"^(~/)?[A-Za-z0-9._/@%+-]+$", max_length=4096)]
Command = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._/@%+:=,-]+( [A-Za-z0-9._/@%+:=,-]+)*$", max_length=1024)
]
Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)]
SettingKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
SettingValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9._:/,=@+% -]*|\*)$", max_length=1024)]
Port = Annotated[int, Field(ge=1, le=65535)]
Jumps = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_\[][0-9A-Za-z._@:,\[\]-]*$", max_length=1024)]


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Partial(Frozen):
    """A mapping with optional keys.

    Reading a key that the file lacks raises InventoryError, so that its type is never None.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()
    where: ClassVar[str] = ""

    @model_validator(mode="after")
    def _left_out(self) -> Self:
        for key in self.may_lack:
            if key in self.__dict__ and self.__dict__[key] is None:  # pydantic validates some parts twice
                del self.__dict__[key]
        return self

    if not TYPE_CHECKING:  # type checkers must see only the fields

        def __getattr__(self, key: str) -> Any:
            if key in type(self).may_lack:
                raise InventoryError(
                    f"the inventory lacks {self.where}{key} (needed: this key; "
                    "docs/reference/migration-yml.md)"
                )
            return super().__getattr__(key)


LEFT_OUT: Any = None
"""The default of an optional key of a :class:`Partial`."""
