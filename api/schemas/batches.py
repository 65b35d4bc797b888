"""The bodies of requests and answers about batches."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from api.schemas.submissions import (
    Baseline,
    DeviceKind,
    DeviceRequirements,
    Precision,
    SubmissionRecord,
    VisibilityName,
)
from evaluator.evaluation import Status, Verdict
from storage.batches.webhooks import InvalidUrl, checked_url
from storage.models import BatchStatus

__all__ = [
    "BatchHeader",
    "BatchList",
    "BatchRecord",
    "BatchRequest",
    "ResultRecord",
    "SummaryRecord",
]


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
    label: str | None = Field(default=None, max_length=200)
    author: str | None = Field(default=None, max_length=200)
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
        "`X-Kerneljudge-Timestamp`, a full stop and the body.",
    )

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
        "is private only in a private batch. Default: `public`.",
    )
    defaults: SubmissionDefaults = Field(default_factory=SubmissionDefaults)
    webhook: WebhookRequest | None = None


class BatchRequest(BatchHeader):
    """A batch in one piece, for some thousands of submissions. Send larger ones line by line."""

    submissions: list[JsonValue] = Field(
        description="Each as in `POST /api/v1/submissions`. One that is not in order is an error of its own, with its "
        "number (from 1) as its line, and the others are graded all the same."
    )


class LineErrorRecord(BaseModel):
    """A line that is not a valid submission."""

    line: int = Field(description="From 1; of a batch in one piece, the number of the submission.")
    message: str


class FiguresRecord(BaseModel):
    """The figures of a set of candidates. Shares refer to all problems, including those without a candidate."""

    problems: int
    candidates: int = Field(description="Those that were graded.")
    ungraded: int = Field(description="Those that were not, or not yet.")
    compiled: int
    correct: int
    unsettled: int = Field(description="Of the correct ones, those on too noisy a machine for a speedup.")
    not_vetted: int = Field(
        description="Of the correct ones, those without a speedup, of problems that are not vetted or refused."
    )
    weights_fixed: int = Field(
        description="Of the correct ones, those without a speedup, since they are right with some parameters only as "
        "these are at first."
    )
    solved: int = Field(description="Problems with a correct candidate.")
    fast_p: dict[str, float] = Field(
        description="By p: the share of problems whose best candidate is correct with a speedup above p, the lower end "
        "of its interval included. Above 0, what has no speedup is not faster."
    )
    geometric_mean: float | None = Field(description="Of the speedups of the correct candidates.")
    best_geometric_mean: float | None = Field(description="The same of each problem's best candidate.")


class PassAtKRecord(BaseModel):
    """The unbiased estimate of the chance that one of `k` candidates is correct with a speedup above `p`.

    It is averaged over problems.
    """

    k: int
    p: float
    value: float


class BestRecord(BaseModel):
    """The best candidate of a problem: the fastest correct one."""

    problem: str
    candidates: int
    correct: int
    name: str = Field(description="Its label, or else its submission's id; empty where none is correct.")
    speedup: float | None
    certain_speedup: float | None = Field(description="The lower end of its interval, by which it is the best.")


class SummaryRecord(BaseModel):
    """The summary of a batch, as far as it is graded. *Metrics* in the documentation has the definitions."""

    overall: FiguresRecord
    verdicts: dict[Verdict, int]
    pass_at_k: list[PassAtKRecord]
    by_level: dict[str, FiguresRecord] = Field(description="By KernelBench's level.")
    by_tag: dict[str, FiguresRecord]
    best: list[BestRecord]
    missing: list[str] = Field(description="Problems that were asked about and have no candidate.")


class WebhookRecord(BaseModel):
    """The webhook of a batch, and the state of its delivery."""

    url: str
    attempts: int
    delivered: datetime | None
    message: str = Field(description="The error of the last attempt; empty without one.")


class BatchLinks(BaseModel):
    """The addresses of a batch and its parts."""

    self: str
    results: str
    events: str
    summary: str


class BatchRecord(BaseModel):
    """A batch and its progress."""

    id: str
    name: str | None
    visibility: VisibilityName
    owner: str | None = Field(description="As of a submission.")
    status: BatchStatus = Field(
        description="`receiving` while lines come in, `running`, `done`; `cancelled` as soon as it is, even if "
        "something of it has begun and goes on."
    )
    message: str = Field(description="Why it was cancelled.")
    items: int = Field(description="Lines that are submissions.")
    errors_total: int = Field(description="Lines that are none.")
    errors: list[LineErrorRecord] = Field(
        description="The first 100 of those; of a batch whose source is hidden, only for its owner."
    )
    statuses: dict[Status, int] = Field(description="Items by status.")
    verdicts: dict[Verdict, int] = Field(description="Items by verdict.")
    finished_items: int
    shared: int = Field(description="Items that share their submission with an earlier line, of this batch or another.")
    rate_per_min: float | None = Field(
        description="Items that ended a minute, over the last minutes; null before the first."
    )
    eta_s: float | None = Field(description="Seconds until the last item ends, at that rate.")
    created: datetime
    received: datetime | None = Field(description="The time at which the last line was received.")
    finished: datetime | None = Field(description="When the last item was over.")
    webhook: WebhookRecord | None = Field(description="Only for its owner and for administrators.")
    summary: SummaryRecord | None = Field(description="Only in a single record and at the end of the events.")
    links: BatchLinks


class BatchList(BaseModel):
    """Batches, newest first, without their summaries."""

    items: list[BatchRecord]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last one.")


class ResultRecord(BaseModel):
    """A line of the results: an item that is over."""

    cursor: int = Field(description="Its place in the order of completion; pass it as `cursor` to go on after it.")
    line: int
    label: str | None
    cancelled: bool = Field(description="The batch was cancelled before it began; its submission went on for another.")
    submission: SubmissionRecord
