import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Kullback-Leibler divergence of a student from its teacher, as in distillation: softened by a temperature, one
    value per row.
    """

    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        """
        Args:
            student: logits of shape (rows, classes).
            teacher: logits of the same shape.

        Returns:
            Tensor of shape (rows,): the sum over classes of p * (log p - log q), times the temperature squared.
        """
        log_q = F.log_softmax(student / self.temperature, dim=-1)
        log_p = F.log_softmax(teacher / self.temperature, dim=-1)
        return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1) * self.temperature**2


rows = 8192
classes = 16384
temperature = 2.0


def get_inputs():
    student, teacher = torch.randn(rows, classes) * 2.0, torch.randn(rows, classes) * 2.0
    # Nothing depends on what is added to a whole row, but these overflow an exponential: a few rows, never the same.
    for logits in (student, teacher):
        logits[torch.randint(rows, (1 + rows // 1024,))] += 250.0
    return [student, teacher]


def get_init_inputs():
    return [temperature]
