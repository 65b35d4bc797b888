"""Importing KernelBench's problems: each is admitted as data in our form, or refused with a reason.

``checkout`` finds and reads files, ``examine`` has a reference examined, ``admission`` decides, ``folder`` writes.
Torch-free but for ``examination``, which is executed in the sandbox alone.
"""

from __future__ import annotations

from evaluator.problems.importing.admission import Admission, AdmissionStatus, import_file
from evaluator.problems.importing.checkout import LEVELS, find_files

__all__ = ["LEVELS", "Admission", "AdmissionStatus", "find_files", "import_file"]
