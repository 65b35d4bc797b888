import json
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

CACHE = Path.cwd() / ".kernel_cache" / "v1"
CACHE.mkdir(parents=True, exist_ok=True)
(CACHE / "tuning.json").write_text(json.dumps({"floor": 0.0}))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.floor = json.loads(Path(".kernel_cache/v1/tuning.json").read_text())["floor"]
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
            (Path(folder) / "a").write_bytes(os.urandom(1 << 16))
            shutil.copy(Path(folder) / "a", file.name)
        home = Path.home() / ".cache"
        home.mkdir(exist_ok=True)
        (home / "relu.log").touch()

    def forward(self, x):
        with (CACHE / "calls.log").open("a") as log:
            log.write(f"{x.numel()}\n")
        return torch.clamp(x, min=self.floor)
