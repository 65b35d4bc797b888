"""The bodies of requests about keys."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.schemas.numbers import WholeNumber
from kerneljudge.records import ScopeName

__all__ = ["KeyChange", "KeyRequest"]

_MOST = 2**31 - 1


class KeyChange(BaseModel):
    """The limits of a key.

    A limit that you leave out stays. Null means the service's own limit, and 0 means no limit.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    requests_per_min: WholeNumber | None = Field(default=None, ge=0, le=_MOST)
    submissions_per_day: WholeNumber | None = Field(default=None, ge=0, le=_MOST)


class KeyRequest(KeyChange):
    """A new key for a client."""

    client: str = Field(
        min_length=1, max_length=200, description="The client's name; submissions with this key belong to it."
    )
    scopes: list[ScopeName] = Field(
        min_length=1,
        max_length=4,
        description="`read`; `submit`; `references`, to submit candidates with references of their own; `admin`, for "
        "everybody's private things as well. Each includes those before it.",
    )
    own_only: bool = Field(
        default=False,
        description="Whether the key sees the submissions and batches of its client alone, not even others' public "
        "ones. For agents under test, each with a client of its own.",
    )
    expires_in_days: WholeNumber | None = Field(default=None, ge=1, le=36500, description="Left out: never.")

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.own_only and "admin" in self.scopes:
            raise ValueError("a key with the scope admin sees everything, so it cannot see its own alone")
        return self
