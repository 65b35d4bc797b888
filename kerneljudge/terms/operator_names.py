"""The operators that a rule can forbid, and the names by which torch offers each. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

__all__ = ["OPERATORS", "TENSOR_METHODS", "operators_of"]

OPERATORS: Final = frozenset(
    {"abs", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
     "adaptive_max_pool2d", "adaptive_max_pool3d", "addbmm", "addmm", "addmv", "amax", "amin", "argmax", "argmin",
     "argsort", "avg_pool1d", "avg_pool2d", "avg_pool3d", "baddbmm", "batch_norm", "bilinear", "binary_cross_entropy",
     "binary_cross_entropy_with_logits", "bmm", "cdist", "celu", "clamp", "conv1d", "conv2d", "conv3d",
     "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity",
     "cross_entropy", "cummax", "cummin", "cumprod", "cumsum", "dot", "dropout", "einsum", "elu", "embedding",
     "embedding_bag", "erf", "exp", "fold", "gelu", "glu", "group_norm", "hardshrink", "hardsigmoid", "hardswish",
     "hardtanh", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss",
     "layer_norm", "leaky_relu", "linear", "local_response_norm", "log", "log_softmax", "logsigmoid", "logsumexp",
     "margin_ranking_loss", "matmul", "max", "max_pool1d", "max_pool2d", "max_pool3d", "mean", "min", "mish", "mm",
     "mse_loss", "mv", "nll_loss", "norm", "normalize", "pairwise_distance", "prelu", "prod", "relu", "relu6",
     "rms_norm", "rrelu", "rsqrt", "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss",
     "softmax", "softmin", "softplus", "softshrink", "softsign", "sort", "sqrt", "std", "sum", "tanh", "tanhshrink",
     "tensordot", "threshold", "topk", "triplet_margin_loss", "unfold", "var"}
)  # fmt: skip

TENSOR_METHODS: Final = frozenset(
    {"abs", "addbmm", "addmm", "addmv", "amax", "amin", "aminmax", "argmax", "argmin", "argsort", "baddbmm", "bmm",
     "clamp", "clip", "cummax", "cummin", "cumprod", "cumsum", "dot", "erf", "exp", "hardshrink", "inner", "log",
     "log_softmax", "logsumexp", "matmul", "max", "mean", "min", "mm", "mv", "norm", "prelu", "prod",
     "relu", "rsqrt", "sigmoid", "smm", "softmax", "sort", "sqrt", "sspaddmm", "std", "sum", "tanh", "topk", "unfold",
     "var", "vdot"}
)  # fmt: skip
"""Operators that a tensor has as methods: of an unknown object, these methods alone are taken for torch's."""

_PRODUCTS: Final = (
    "addbmm", "addmm", "addmv", "baddbmm", "bilinear", "bmm", "chain_matmul", "dot", "einsum", "imatmul", "inner",
    "int_mm", "linear", "mm", "multi_dot", "mv", "rmatmul", "scaled_mm", "grouped_mm", "smm", "sspaddmm",
    "tensordot", "vdot", "addmm_activation",
)  # fmt: skip
_CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_ATTENTION: Final = ("matmul", "scaled_dot_product_attention", "softmax")
_RECURRENT: Final = ("linear", "matmul", "sigmoid", "tanh")
_TRANSFORMER: Final = ("dropout", "layer_norm", "linear", "relu", *_ATTENTION)
_MADE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_PRODUCTS, ("matmul",)),
    "scaled_dot_product_attention": ("matmul", "softmax"),
    "scaled_dot_product_flash_attention": _ATTENTION,
    "scaled_dot_product_efficient_attention": _ATTENTION,
    "flex_attention": _ATTENTION,
    "multi_head_attention_forward": ("linear", *_ATTENTION),
    "MultiheadAttention": ("linear", *_ATTENTION),
    **dict.fromkeys(("convolution", "convolution_overrideable"), _CONVOLUTIONS),
    **dict.fromkeys(("RNN", "RNNCell", "GRU", "GRUCell", "LSTM", "LSTMCell", "rnn_tanh", "rnn_relu"), _RECURRENT),
    **dict.fromkeys(("Transformer", "TransformerEncoder", "TransformerDecoder"), _TRANSFORMER),
    **dict.fromkeys(("TransformerEncoderLayer", "TransformerDecoderLayer"), _TRANSFORMER),
    "NonDynamicallyQuantizableLinear": ("linear", "matmul"),
    "AdaptiveLogSoftmaxWithLoss": ("linear", "log_softmax", "matmul"),
    "cross_entropy": ("log_softmax", "nll_loss"),
    "nll_loss_nd": ("nll_loss",),
    "gumbel_softmax": ("softmax",),
    "softmin": ("softmax",),
    "Softmax2d": ("softmax",),
    "BCELoss": ("binary_cross_entropy",),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits",),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"), ("batch_norm",)),
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), ("instance_norm",)),
    **dict.fromkeys(("vector_norm", "matrix_norm"), ("norm",)),
    **dict.fromkeys(("upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"), ("interpolate",)),
    **dict.fromkeys(("Dropout1d", "Dropout2d", "Dropout3d", "alpha_dropout", "feature_dropout"), ("dropout",)),
    "var_mean": ("mean", "var"),
    "std_mean": ("mean", "std"),
    "aminmax": ("amax", "amin", "max", "min"),
    "clip": ("clamp",),
}
"""Names of torch that count as other operators, because they are other names of these or compute with them."""

_PREFIXES: Final = ("native", "cudnn", "miopen", "mkldnn", "thnn", "slow", "lazy")


@cache
def operators_of(name: str) -> frozenset[str]:
    """Return the operators that ``name`` counts as, a function, method or class of torch; none for any other name.

    ``Conv2d`` and ``conv2d`` are one, as are ``relu_``, ``ReLU`` and ``relu``.
    """
    key = _key(name)
    keys = {key, *(key.removeprefix(prefix) for prefix in _PREFIXES)}
    return frozenset(operator for each in keys for operator in _BY_KEY.get(each, ()))


def _key(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("loss")


def _by_key() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {_key(name): frozenset({name}) for name in OPERATORS}
    for name, operators in _MADE_OF.items():
        found[_key(name)] = found.get(_key(name), frozenset()) | frozenset(operators)
    return found


_BY_KEY: Final = _by_key()
