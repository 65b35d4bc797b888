import torch
from model import Model


class ModelNew(Model):
    def forward(self, parameters, gradients, first_moment, second_moment, step):
        gradients = gradients + self.weight_decay * parameters
        first = self.beta_1 * first_moment + (1.0 - self.beta_1) * gradients
        second = self.beta_2 * second_moment + (1.0 - self.beta_2) * gradients * gradients
        root = (second / (1.0 - self.beta_2**step)).sqrt() + self.epsilon
        return parameters - self.learning_rate / (1.0 - self.beta_1**step) * first / root, first, second
