"""Faults that are ours or the machine's, never the candidate's.

    EvaluatorError
    ├── ProblemError          a problem's files are unusable (with file and field)
    ├── DeviceUnavailable     the device asked for is not on this machine
    ├── ToolchainMissing      a compiler that the candidate needs is missing
    ├── SandboxIncomplete     a complete sandbox is required, and the kernel refuses a part of it (with its name)
    ├── DoesNotFit            the problem's size cannot fit the device (with the figures)
    │   └── GroupDoesNotFit   for so many candidates at once
    ├── InfrastructureFault   a judge, builder or fork server died or broke its protocol: retry elsewhere
    └── EvaluationCancelled   the caller asked to stop

A bad candidate raises none of these: it gets an ``Evaluation`` with a verdict.
"""

from __future__ import annotations

from kerneljudge.terms.faults import EvaluatorError, ProblemError

__all__ = [
    "DeviceUnavailable",
    "DoesNotFit",
    "EvaluationCancelled",
    "EvaluatorError",
    "GroupDoesNotFit",
    "InfrastructureFault",
    "ProblemError",
    "SandboxIncomplete",
    "ToolchainMissing",
    "public_text",
]


class DeviceUnavailable(EvaluatorError):
    """The device asked for is not on this machine, or no longer; another machine may have it."""

    retriable = True


class ToolchainMissing(EvaluatorError):
    """A compiler that the candidate needs is not on this machine; another machine may have it."""

    retriable = True


class SandboxIncomplete(EvaluatorError):
    """A complete sandbox is required, and the kernel refuses a layer of it; the message names the layer."""


class DoesNotFit(EvaluatorError):
    """The problem at this size cannot fit the device; the message has the figures."""


class GroupDoesNotFit(DoesNotFit):
    """So many candidates of the problem at this size cannot be on the device at once; fewer may."""


class InfrastructureFault(EvaluatorError):
    """One of our own processes died or broke its protocol; the evaluation can be retried."""

    retriable = True


class EvaluationCancelled(EvaluatorError):
    """The caller asked to stop; nothing was recorded."""


def public_text(error: BaseException) -> str:
    """Return the words about ``error`` that may go into a record: its text if it is ours, else its type alone.

    The text of any other exception may hold data of a user, a statement, an address or a path. It belongs in the log.
    """
    return str(error) if isinstance(error, EvaluatorError) else f"{type(error).__name__} (the log has its text)"
