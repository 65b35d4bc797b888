import asyncio

import torch
import torch.nn as nn


async def part(x):
    await asyncio.sleep(0)
    return torch.relu(x)


async def whole(x):
    return torch.cat(await asyncio.gather(*(part(piece) for piece in x.split(24))))


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return asyncio.run(whole(x))
