"""The bodies of requests about batches."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from api.schemas.submissions import DeviceRequirements, Metadata, RulesRequest
from kerneljudge.records import Baseline, DeviceKind, Precision, TierName, VisibilityName
from storage.batches.webhooks import InvalidUrl, checked_secret, checked_url

__all__ = ["BatchHeader", "BatchRequest"]


class SubmissionDefaults(BaseModel):
    """The defaults for every submission of a batch; a line may override them. See `SubmissionRequest`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    problem: str | None = Field(default=None, max_length=200)
    device: DeviceKind | None = None
    size: str | None = Field(default=None, max_length=100)
    precision: Precision | None = None
    require_gradients: bool | None = None
    baseline: Baseline | None = None
    limits: dict[str, float] | None = None
    tier: TierName | None = None
    rules: RulesRequest | None = None
    label: str | None = Field(default=None, max_length=200)
    author: str | None = Field(default=None, max_length=200)
    metadata: Metadata | None = None
    parent: str | None = Field(default=None, max_length=100)
    requirements: DeviceRequirements | None = None
    visibility: VisibilityName | None = None


class WebhookRequest(BaseModel):
    """The address that is notified when a batch is over.

    It gets a signed POST of the batch's record and summary. A failed delivery is repeated for a day.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    url: str = Field(max_length=2000, description="`http` or `https`.", json_schema_extra={"format": "uri"})
    secret: str = Field(
        min_length=8,
        max_length=200,
        description="`X-Kerneljudge-Signature` is `sha256=` and the HMAC-SHA256, by this secret, of "
        "`X-Kerneljudge-Timestamp`, a full stop and the body. `webhook-signature` is that of Standard Webhooks, whose "
        "key a secret with the prefix `whsec_` has in base64.",
    )

    @field_validator("secret")
    @classmethod
    def _usable(cls, secret: str) -> str:
        return checked_secret(secret)

    @field_validator("url")
    @classmethod
    def _checked(cls, url: str) -> str:
        try:
            return checked_url(url)
        except InvalidUrl as error:
            raise ValueError(str(error)) from error


class BatchHeader(BaseModel):
    """The properties of a batch as a whole."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str | None = Field(default=None, max_length=200)
    visibility: VisibilityName | None = Field(
        default=None,
        description="The visibility of the batch, and of its lines without their own; see `SubmissionRequest`. A line "
        "is private only in a private batch. Default: `public`, and `private` from its first line to a private "
        "problem on.",
    )
    defaults: SubmissionDefaults = Field(default_factory=SubmissionDefaults)
    webhook: WebhookRequest | None = None


class BatchRequest(BatchHeader):
    """A batch in one piece, for some thousands of submissions. Send larger ones line by line."""

    submissions: list[JsonValue] = Field(
        description="Each as in `POST /api/v1/submissions`. One that is not in order is an error of its own, with its "
        "number (from 1) as its line, and the others are graded all the same."
    )
