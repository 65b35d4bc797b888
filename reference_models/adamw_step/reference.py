import torch
import torch.nn as nn


class Model(nn.Module):
    """
    One step of AdamW, as a function: new parameters and moments from the old ones and the gradients.
    """

    def __init__(self, learning_rate, beta_1, beta_2, epsilon, weight_decay):
        super().__init__()
        self.learning_rate = learning_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay = weight_decay

    def forward(self, parameters, gradients, first_moment, second_moment, step):
        """
        Args:
            parameters: tensor of shape (rows, columns).
            gradients: tensor of the same shape.
            first_moment: running mean of the gradients, of the same shape.
            second_moment: running mean of their squares, of the same shape and nowhere negative.
            step: how many steps this is, an integer from 1.

        Returns:
            Three tensors of the same shape: parameters, first and second moment after the step. None of the inputs
            is written to.
        """
        first_moment = self.beta_1 * first_moment + (1.0 - self.beta_1) * gradients
        second_moment = self.beta_2 * second_moment + (1.0 - self.beta_2) * gradients * gradients
        mean = first_moment / (1.0 - self.beta_1**step)
        mean_square = second_moment / (1.0 - self.beta_2**step)
        decayed = parameters * (1.0 - self.learning_rate * self.weight_decay)
        return decayed - self.learning_rate * mean / (mean_square.sqrt() + self.epsilon), first_moment, second_moment


rows = 4096
columns = 8192
learning_rate = 1e-3
weight_decay = 0.1
step = 1000


def get_inputs():
    # Gradients of very different scale, down to that of epsilon.
    scale = 10.0 ** (torch.rand(rows, columns) * 4.0 - 7.0)
    parameters = torch.randn(rows, columns) * 0.02
    gradients = torch.randn(rows, columns) * scale
    first_moment = torch.randn(rows, columns) * scale * 0.3
    return [parameters, gradients, first_moment, scale.square_(), step]


def get_init_inputs():
    return [learning_rate, 0.9, 0.999, 1e-8, weight_decay]
