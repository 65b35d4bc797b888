import torch
from model import Model


class ModelNew(Model):
    def forward(self, parameters, gradients, first_moment, second_moment, step):
        _, first, second = super().forward(parameters, gradients, first_moment, second_moment, step)
        root = (second / (1.0 - self.beta_2**step) + self.epsilon).sqrt()
        decayed = parameters * (1.0 - self.learning_rate * self.weight_decay)
        return decayed - self.learning_rate / (1.0 - self.beta_1**step) * first / root, first, second
