import queue
import threading

import torch
import torch.nn as nn


class Worker(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.jobs = queue.SimpleQueue()
        self.results = queue.SimpleQueue()

    @torch.no_grad()
    def run(self):
        while True:
            self.results.put(torch.relu(self.jobs.get()))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.worker = Worker()
        self.worker.start()

    def forward(self, x):
        self.worker.jobs.put(x.detach())
        return self.worker.results.get()
