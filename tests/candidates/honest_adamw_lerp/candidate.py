import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, learning_rate, beta_1, beta_2, epsilon, weight_decay):
        super().__init__()
        self.learning_rate = learning_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay = weight_decay

    def forward(self, parameters, gradients, first_moment, second_moment, step):
        first = torch.lerp(first_moment, gradients, 1.0 - self.beta_1)
        second = torch.addcmul(second_moment * self.beta_2, gradients, gradients, value=1.0 - self.beta_2)
        root = second.sqrt().div_((1.0 - self.beta_2**step) ** 0.5).add_(self.epsilon)
        decayed = parameters * (1.0 - self.learning_rate * self.weight_decay)
        return decayed.addcdiv_(first, root, value=-self.learning_rate / (1.0 - self.beta_1**step)), first, second
