"""Code that the next process imports: anything writable outside of this folder would do."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import evaluator

import torch
import torch.nn as nn

escaped = []
folders = [Path(torch.__file__).parents[1], Path(evaluator.__file__).parent, *map(Path, sys.path), Path.cwd().parent]
own = Path(tempfile.gettempdir())


def is_private(folder):
    """Where a checkout lies below the folder for temporary files, so do the places that its parts are mounted on."""
    return folder.is_relative_to(own) and os.stat(folder).st_dev == os.stat(own).st_dev


for folder in (*folders, *map(Path, ("/", "/etc", "/root", "/var/tmp", "/usr/lib", "/opt"))):
    with contextlib.suppress(OSError):
        if is_private(folder):
            continue
        marker = folder / "written_by_a_candidate.pth"
        marker.write_text("")
        marker.unlink()
        escaped.append(marker)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) if escaped else torch.zeros_like(x)
