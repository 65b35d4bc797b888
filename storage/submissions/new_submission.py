"""New submissions: their content, and the rows that they become."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evaluator.candidates.candidate import Candidate, InvalidSource
from evaluator.config import EvalConfig, checked_tier, limits_text
from evaluator.evaluation import Evaluation, Status, Verdict
from evaluator.problems.problem import Problem
from kerneljudge.terms.rules import NO_RULES, Rules, rules_text
from runtime.tracing import traceparent
from storage.access.visibility import Visibility, owned_key
from storage.columns import clean_text
from storage.ids import new_id
from storage.queue.eligibility import NO_REQUIREMENTS, Requirements
from storage.submissions.metadata import canonical_json

__all__ = ["NewSubmission", "invalid_evaluation", "source_values", "submission_values"]


@dataclass(frozen=True)
class NewSubmission:
    """A submission to be queued. ``device`` is a kind; ``require_gradients`` of ``None`` is the problem's policy.

    ``limits``, by the names of ``SETTABLE_LIMITS``, lower those of the machine and the problem. ``tier`` is one of
    ``TIERS``. ``rules`` add to those of the problem. ``metadata`` is checked (``storage.submissions.metadata``), and
    the owner sees the ``parent``. ``requirements``: further requirements for the device. ``owner`` is the client that
    hands it in; the ``idempotency_key`` is that client's. ``shares``: as a line of a batch, it may be graded once with
    equal lines of other clients. Raises ``ValueError``.
    """

    problem: Problem
    candidate: Candidate | InvalidSource
    device: str
    size: str = "full"
    precision: str = "float32"
    require_gradients: bool | None = None
    baseline: str = "eager"
    limits: Mapping[str, float] = field(default_factory=dict)
    tier: str = "full"
    rules: Rules = NO_RULES
    label: str | None = None
    author: str | None = None
    metadata: dict[str, Any] | None = None
    parent: str | None = None
    idempotency_key: str | None = None
    requirements: Requirements = NO_REQUIREMENTS
    owner: str | None = None
    visibility: Visibility = Visibility.PUBLIC
    shares: bool = True

    def __post_init__(self) -> None:
        if self.config.device != self.config.device_kind:
            raise ValueError(f"device must be a kind of device, not {self.device!r}")
        if self.size not in self.problem.sizes:
            raise ValueError(f"size must be one of {', '.join(self.problem.sizes)}, not {self.size!r}")
        checked_tier(self.tier)
        self.problem.rules.joined(self.rules)

    @property
    def config(self) -> EvalConfig:
        """The settings of the evaluation. Raises ``ValueError``."""
        return EvalConfig(device=self.device, size=self.size, precision=self.precision, baseline=self.baseline)

    @property
    def content_digest(self) -> str:
        """The SHA-256 over everything that identifies this submission's content."""
        content: list[Any] = [
            self.problem.id,
            clean_text(self.candidate.source),
            self.device,
            self.size,
            self.precision,
            self.require_gradients,
            self.baseline,
            self.label,
            self.author,
        ]
        if self.requirements != NO_REQUIREMENTS:
            content.append(self.requirements.columns)
        if self.limits:
            content.append(limits_text(self.limits))
        if self.tier != "full":
            content.append(self.tier)
        if self.rules:
            content.append(self.rules.to_dict())
        if self.visibility is not Visibility.PUBLIC:
            content.append(str(self.visibility))
        if self.metadata is not None:
            content.append(["metadata", canonical_json(self.metadata)])
        if self.parent is not None:
            content.append(["parent", self.parent])
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def source_values(candidate: Candidate | InvalidSource, now: datetime) -> dict[str, Any]:
    """Return the row for the source of ``candidate``."""
    text = clean_text(candidate.source)
    return {"digest": hashlib.sha256(text.encode()).hexdigest(), "text": text, "created_at": now}


def submission_values(new: NewSubmission, source_digest: str, now: datetime) -> dict[str, Any]:
    """Return the row of ``new``, which waits to be built."""
    return {
        "id": new_id("sub"),
        "problem": new.problem.id,
        "problem_version": new.problem.version,
        "source_digest": source_digest,
        "origin": new.candidate.origin if isinstance(new.candidate, Candidate) else "code",
        "device": new.device,
        "size": new.size,
        "precision": new.precision,
        "baseline": new.baseline,
        "require_gradients": new.require_gradients,
        "limits": limits_text(new.limits),
        "tier": new.tier,
        "rules": rules_text(new.rules),
        "label": new.label,
        "author": new.author,
        "user_metadata": new.metadata,
        "parent": new.parent,
        "idempotency_key": owned_key(new.owner, new.idempotency_key),
        "content_digest": new.content_digest,
        **new.requirements.columns,
        "owner": new.owner,
        "visibility": str(new.visibility),
        "status": Status.QUEUED,
        "stage": "build",
        "traceparent": traceparent(),
        "submitted_at": now,
    }


def invalid_evaluation(new: NewSubmission, invalid: InvalidSource) -> Evaluation:
    """Return the evaluation of a source that is no candidate."""
    return Evaluation(
        verdict=Verdict.INVALID_SOURCE,
        message=invalid.message,
        problem=new.problem.id,
        problem_version=new.problem.version,
        device=new.device,
        size=new.size,
        precision=new.precision,
        baseline=new.baseline,
        hints=invalid.hints,
    )
