"""Rules of measurement that a call can break."""

from __future__ import annotations

__all__ = ["ClocksDisagree", "DeviceBusy", "Violation"]


class Violation(Exception):
    """A rule of measurement was broken: the evaluation is ``rejected`` with this message."""


class DeviceBusy(Violation):
    """Work was found on the device while every process was stopped: the candidate's, or another program's."""


class ClocksDisagree(Violation):
    """More time lies between the runner's clock and the judge's than for the baseline."""
