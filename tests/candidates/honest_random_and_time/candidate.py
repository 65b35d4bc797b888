import datetime
import random
import time
import uuid

import numpy as np
import torch
import torch.nn as nn

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
STARTED = time.time()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.identity = uuid.uuid4().hex

    def forward(self, x):
        self.called_at = datetime.datetime.now(), time.monotonic_ns() - STARTED, time.process_time()
        jitter = random.random() * 0.0 + float(np.random.rand()) * 0.0 + float(torch.rand(1)) * 0.0
        return torch.relu(x + jitter)
