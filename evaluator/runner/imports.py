"""Importing the files in an evaluation's folder: the problem and the candidate."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

__all__ = ["import_file"]


def import_file(name: str, directory: Path) -> types.ModuleType:
    """Import ``directory/name.py`` as module ``name``, so that ``from model import Model`` finds it too."""
    spec = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
