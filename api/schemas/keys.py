"""The bodies of requests about keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from kerneljudge.records import ScopeName

__all__ = ["KeyChange", "KeyRequest"]

_MOST = 2**31 - 1


class KeyChange(BaseModel):
    """The limits of a key.

    A limit that you leave out stays. Null means the service's own limit, and 0 means no limit.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    requests_per_min: int | None = Field(default=None, ge=0, le=_MOST)
    submissions_per_day: int | None = Field(default=None, ge=0, le=_MOST)


class KeyRequest(KeyChange):
    """A new key for a client."""

    client: str = Field(
        min_length=1, max_length=200, description="The client's name; submissions with this key belong to it."
    )
    scopes: list[ScopeName] = Field(
        min_length=1,
        max_length=3,
        description="`read`, `submit` (includes `read`), `admin` (includes both, and everybody's private things).",
    )
    expires_in_days: int | None = Field(default=None, ge=1, le=36500, description="Left out: never.")
