import torch
import torch.nn as nn


class ModelNew(nn.Module):  

	def __init__(self):
		super().__init__()
		if True:
			self.low = 0	

	def forward(self, x):   
		return (
			x
			.clamp(
		min=self.low,
)
		)
	

