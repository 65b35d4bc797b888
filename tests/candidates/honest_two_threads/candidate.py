import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        halves = x.tensor_split(2)
        results = [None, None]
        grad = torch.is_grad_enabled()

        def work(index):
            with torch.set_grad_enabled(grad):
                results[index] = torch.relu(halves[index])

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return torch.cat(results)
