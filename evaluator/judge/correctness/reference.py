"""The reference model in the judge: its shapes, its weights, its outputs and gradients in float64."""

from __future__ import annotations

import contextlib
import copy
import re
import secrets
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.dtypes import as_reals, coarsest, in_double, is_differentiable, unjudged
from evaluator.errors import ProblemError
from evaluator.judge.correctness.overflow import Saturating
from evaluator.judge.device.device import Device, working_on
from evaluator.judge.footprint import Footprint
from evaluator.judge.inputs.parameters import Values, constants_of
from evaluator.judge.inputs.relations import related_of
from evaluator.judge.inputs.seeding import SECRET_SEEDS, seed_generators
from evaluator.judge.signature import Signature
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import MAX_TENSORS
from evaluator.protocol.shared_memory import TensorSpec, shares_elements

__all__ = ["NUDGE", "GradientSlice", "Reference"]

_PRODUCTS: Final = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}
_CHOICES: Final = {
    f"aten::{name}"
    for name in (
        *("argmax", "argmin", "topk", "sort", "kthvalue", "median", "nanmedian", "mode"),
        *("cummax", "cummin", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    )
}
_LARGEST: Final = {f"aten::{name}" for name in ("max", "min", "amax", "amin", "cummax", "cummin")}
_EXACT: Final = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
_CASTS: Final = re.compile(r"\.(?:float|half|type|bfloat16)\b|float32|float16|dtype")
"""A reference whose source has none of these uses no other dtype than that of its inputs."""
_NAMES_DOUBLE: Final = re.compile(r"float64|double")
_NOT_OF_THE_REFERENCE: Final = ("can't allocate memory", "CUDA error", "ALLOC_FAILED")
"""Libraries report this in an exception without a class of its own."""
_FAR: Final = 4.0
_ROUNDED_RUNS: Final = 6
_PERTURBATIONS: Final = 12
"""A function of two numbers' difference does not change where both move alike. With six random moves, all are alike in
1.6 % of the cases. As often, an honest candidate was turned down for one element of a softmax's gradient."""
_SOFTMAXES: Final = frozenset({"aten::_softmax", "aten::_safe_softmax", "aten::_log_softmax"})
_MAX_SHIFT: Final = 2.0**-10
"""The largest move of a softmax's exponent: the rounding of numbers about 8000 in float32. Where every score is masked
by a number such as -1e9, its rounding would excuse anything."""
_NUDGES: Final = 3
NUDGE: Final = 2.0**-20
_RANDOM_SIDES: Final = 6
_BESIDE_ZERO: Final = torch.finfo(torch.float32).tiny
"""Such a small relative move changes results only in proportion, and is still far from rounding in float64."""

_ROUNDING: Final = frozenset(
    """
    acos acosh add addbmm addcdiv addcmul addmm addmv addr asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d baddbmm binary_cross_entropy bmm celu convolution cos
    cosh cumprod cumsum dist div dot elu erf erfc exp exp2 expm1 _fft_c2c _fft_c2r _fft_r2c gelu hardsigmoid hardswish
    huber_loss lerp lgamma linalg_vector_norm log log10 log1p log2 logaddexp logcumsumexp logit _log_softmax logsumexp
    mean mish mm mse_loss mul mv native_batch_norm _native_batch_norm_legit native_group_norm native_layer_norm nll_loss
    norm pow prod reciprocal rsqrt rsub _safe_softmax sigmoid silu sin sinh smooth_l1_loss _softmax softplus sqrt square
    std std_mean sub sum tan tanh tanhshrink true_divide var var_mean
    """.split()  # noqa: SIM905 - ninety names are read more easily in lines
)
"""Operators of torch whose results are rounded."""
_CONSTANTS: Final[dict[tuple[str, str, str], tuple[tuple[str, ...], tuple[str, ...]]]] = {}
"""The constant and the related values, by problem, version and size. They are kept because constructing a large model
twice takes long."""
_ROUNDS: Final[set[tuple[str, str, str]]] = set()
"""The problems, by version and size, whose function is found to include rounding."""
_SIGNATURES: Final[dict[tuple[Hashable, ...], Signature]] = {}
"""Signatures, by all that they depend on: a recurrence of a thousand steps takes seconds without computing anything.
The latest ones are kept."""
_MOST_SIGNATURES: Final = 256
_CAST_CHECKS: Final = 6
"""The number of inputs in an evaluation on which this is tested."""
_OTHERWISE: Final = 0.25

_Found = TypeVar("_Found")


@dataclass
class GradientSlice:
    """Outputs and gradients of one slice, as in ``as_reals``. Lists run over outputs, float inputs and weights.

    ``None`` stands for a gradient that the reference itself does not have. The gradient of an input that each slice
    needs as a whole is a sum over slices, as those of weights are: it is behind these, and ``None`` among the inputs.
    """

    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor | None]
    weights: list[torch.Tensor | None]


class Reference:
    """One problem at one size and precision on one device."""

    def __init__(self, problem: Problem, size: str, precision: str, device: Device) -> None:
        self._problem, self._size = problem, size
        self._module = _execute(problem, size)
        self._casts = _CASTS.search(problem.source) is not None
        self._cast_checks = _CAST_CHECKS if self._casts else 0
        self._asks_limits = "finfo" in problem.source and _NAMES_DOUBLE.search(problem.source) is None
        self._device = device.torch_device
        self._dtype: torch.dtype = getattr(torch, precision)
        self._model: torch.nn.Module | None = None
        self._model64: torch.nn.Module | None = None
        self.problem_key = (problem.id, problem.version, size)
        """Everything that decides the source of the reference."""
        self._held: Values = {}
        self.constants: tuple[str, ...] = ()
        """Parameters and buffers whose values are the same under every seed (see
        ``evaluator.judge.inputs.parameters``), or whose relations are: these are ``related`` as well."""
        self.related: tuple[str, ...] = ()
        # Executed once more under secret seeds. Otherwise generators of the source would give each evaluation the same
        # inputs, and the model may need them unchanged for its weights.
        with SECRET_SEEDS.held(secrets.randbits(63)):
            self.get_inputs: Callable[[], Sequence[Any]] = _execute(problem, size).get_inputs
        known = problem.sized_source(size), precision, problem.whole_inputs, problem.pooled
        signature = _SIGNATURES.pop(known, None) or self._find_signature()
        # Other arguments may be random, or change.
        if all(isinstance(value, TensorSpec) for value in signature.inputs):
            while len(_SIGNATURES) >= _MOST_SIGNATURES:
                del _SIGNATURES[next(iter(_SIGNATURES))]
            _SIGNATURES[known] = signature
        self.signature = signature

    def construct(self, seed: int, processors: frozenset[int]) -> None:
        """Build the model as the runners do: on the CPU, under ``seed``, then moved. It uses their ``processors``, with
        as many threads, because the last bits of orthogonal weights and the like depend on it."""
        with working_on(processors):
            model = self._make(seed)
            if self.problem_key not in _CONSTANTS:
                other = self._make(seed ^ 1)
                constants = constants_of(model, other)
                related = related_of(model, other, lambda: self._make(seed ^ 2), constants)
                _CONSTANTS[self.problem_key] = constants, related
            carried = dict((*self.signature.weights, *self.signature.buffers))
            constants, related = _CONSTANTS[self.problem_key]
            self.related = tuple(name for name in related if name in carried)
            self.constants = (*(name for name in constants if name in carried), *self.related)
            self._model = self._placed(model)
            # A function that a module keeps goes on calling the modules of its creation, in a copy as well.
            again = _keeps_functions(self._model)
            twin = self._placed(self._make(seed)) if again else copy.deepcopy(self._model)
            self._model64 = _model_in_double(twin)

    def state_values(self) -> list[torch.Tensor]:
        """Return the present values of parameters and buffers, in the order of ``signature.weights``, then
        ``signature.buffers``."""
        state = _state_of(self._constructed)
        return [state[name].detach() for name, _ in (*self.signature.weights, *self.signature.buffers)]

    @property
    def trained(self) -> frozenset[str]:
        """The names of the parameters that a training changes."""
        return frozenset(name for name, weight in self._constructed.named_parameters() if weight.requires_grad)

    def values_of(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Return copies of the present values of these parameters and buffers."""
        state = _state_of(self._constructed)
        return {name: state[name].detach().clone() for name in names}

    def set_state(self, values: Values) -> None:
        """Go on with these values of parameters and buffers, which have the problem's precision."""
        if values is self._held:
            return
        assert self._model64 is not None
        with torch.no_grad():
            for model in (self._constructed, self._model64):
                state = _state_of(model)
                for name, value in values.items():
                    state[name].copy_(value)
        self._held = values

    @property
    def _constructed(self) -> torch.nn.Module:
        assert self._model is not None
        return self._model

    def exact_outputs(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the float64 outputs for inputs in the problem's precision; all outputs here are as in ``as_reals``."""
        assert self._model64 is not None
        with torch.no_grad(), self._exactly():
            return _exact(_call(self._model64, [*map(in_double, inputs)]))

    def detect_casts(self, inputs: Sequence[Any]) -> None:
        """Find out whether casts belong to the function, as where numbers are split into a high and a low half. Then
        outputs differ from those without casts. It is tested on a few inputs of an evaluation, unless it is known."""
        if self._rounds or not self._cast_checks:
            return
        self._cast_checks -= 1
        exact = self.exact_outputs(inputs)
        _ROUNDS.add(self.problem_key)
        if not any(map(_is_otherwise, exact, self.exact_outputs(inputs))):
            _ROUNDS.discard(self.problem_key)

    def saturated_outputs(self, inputs: Sequence[Any]) -> list[torch.Tensor] | None:
        """Return the float64 outputs with intermediate numbers held where they overflow; ``None`` where that is
        impossible."""
        return _saturated(lambda: self.exact_outputs(inputs))

    def saturated_gradients(self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor]) -> GradientSlice | None:
        """Return the outputs and gradients likewise."""
        return _saturated(lambda: self.exact_gradients(inputs, upstream))

    @property
    def _rounds(self) -> bool:
        return self.problem_key in _ROUNDS

    def native_outputs(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the outputs in the problem's precision."""
        assert self._model is not None
        with torch.no_grad():
            return [as_reals(output) for output in _as_list(_call(self._model, inputs))]

    def exact_gradients(self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor]) -> GradientSlice:
        """Return outputs and gradients in float64."""
        assert self._model64 is not None
        with self._exactly():
            return self._differentiate(
                self._model64, [*map(in_double, inputs)], [in_double(gradient) for gradient in upstream], exact=True
            )

    def native_gradients(self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor]) -> GradientSlice:
        """Return outputs and gradients in the problem's precision."""
        assert self._model is not None
        return self._differentiate(self._model, inputs, upstream)

    def _differentiate(
        self, model: torch.nn.Module, inputs: Sequence[Any], upstream: Sequence[torch.Tensor], *, exact: bool = False
    ) -> GradientSlice:
        found = _differentiate(model, inputs, upstream, exact=exact)
        for index in self.signature.whole_gradients:
            found.weights.append(found.inputs[index])
            found.inputs[index] = None
        return found

    def is_finite_on(
        self, tensors: list[torch.Tensor], *, gradients: bool, slices: Sequence[tuple[int, int] | None] = (None,)
    ) -> bool:
        """Whether floating-point outputs, and ``gradients`` if requested, are finite in the problem's precision, and
        far from infinity. ``tensors``: the tensor inputs, which may be written to. ``slices``: the rows to compute at
        a time, where these are not independent."""
        cuts = (None,) if self.signature.rows is not None else slices
        return all(self._is_finite_on(self.signature.rows_of_inputs(tensors, cut), gradients=gradients) for cut in cuts)

    def _is_finite_on(self, tensors: Sequence[torch.Tensor], *, gradients: bool) -> bool:
        assert self._model is not None
        given = iter(tensors)
        values = [
            value.arrange(next(given)) if isinstance(value, TensorSpec) else value["value"]
            for value in self.signature.inputs
        ]
        with torch.no_grad():
            outputs = _as_list(_call(self._model, values))
        found: list[torch.Tensor | None] = [*outputs]
        if gradients:
            upstream = [torch.randn_like(each) if is_differentiable(each) else each for each in outputs]
            differentiated = self.native_gradients(values, upstream)
            found += [*differentiated.inputs, *differentiated.weights]
        return all(_is_far_from_infinite(tensor) for tensor in found if tensor is not None and tensor.numel())

    @property
    def precision(self) -> torch.dtype:
        """The problem's precision; in float32 alone, tensors that a reference makes in another dtype keep it."""
        return self._dtype

    @property
    def has_tf32(self) -> bool:
        """Whether native-precision results may be rounded to TF32 on the way."""
        return self.signature.rounds_to_tf32 and self._device.type == "cuda" and torch.backends.cudnn.allow_tf32

    @property
    def epsilon(self) -> float:
        """The distance from one to the next number in the problem's precision, or in that of a coarser tensor."""
        specs = [*self.signature.tensors, *(spec for _, spec in self.signature.weights)]
        found = coarsest([self._dtype, *(spec.torch_dtype for spec in specs if spec.is_differentiable)])
        assert found is not None
        return torch.finfo(found).eps

    @property
    def _rounding(self) -> float:
        """The distance from one to the next number where kernels keep sums, at least in float32."""
        return min(self.epsilon, torch.finfo(torch.float32).eps)

    def perturbed_outputs(
        self, inputs: Sequence[Any], relative: float, generator: torch.Generator
    ) -> Iterator[list[torch.Tensor]]:
        """Yield float64 outputs at inputs moved by ± ``relative`` times their magnitude, with random signs. Softmaxes
        move by roundings of the logarithm of their sum."""
        assert self._model64 is not None
        for moved in _moved(inputs, relative, generator):
            with torch.no_grad(), self._exactly(), _SoftmaxRounded(self._rounding, generator):
                outputs = _exact(_call(self._model64, moved))
            yield outputs

    def perturbed_gradients(
        self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor], relative: float, generator: torch.Generator
    ) -> Iterator[GradientSlice]:
        """Yield float64 gradients at inputs moved by ± ``relative`` times their magnitude, with random signs."""
        assert self._model64 is not None
        upstream64 = [in_double(gradient) for gradient in upstream]
        for moved in _moved(inputs, relative, generator):
            with self._exactly():
                yield self._differentiate(self._model64, moved, upstream64, exact=True)
            del moved

    def rounded_gradients(
        self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor], relative: float, generator: torch.Generator
    ) -> Iterator[GradientSlice]:
        """Yield float64 gradients half a dozen times, with random moves of each intermediate result by up to
        ``relative`` of it (Monte Carlo arithmetic, Parker 1997). Softmaxes move by roundings of the logarithm of their
        sum."""
        assert self._model64 is not None
        values, upstream64 = [*map(in_double, inputs)], [in_double(gradient) for gradient in upstream]
        for _ in range(_ROUNDED_RUNS):
            with self._exactly(), _SoftmaxRounded(self._rounding, generator), _Rounded(relative, generator):
                found = self._differentiate(self._model64, values, upstream64, exact=True)
            yield found
            del found

    def gradients_beside_zero(
        self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor], generator: torch.Generator
    ) -> Iterator[GradientSlice]:
        """Yield float64 gradients at inputs whose exact zeros are moved next to zero: above it, below it, and on random
        sides, half a dozen times. Where a derivative jumps at zero, those are the one-sided ones."""
        assert self._model64 is not None
        upstream64 = [in_double(gradient) for gradient in upstream]
        for sign in (1.0, -1.0, *[None] * _RANDOM_SIDES):
            moved = [_beside_zero(value, sign, generator) for value in inputs]
            with self._exactly():
                yield self._differentiate(self._model64, moved, upstream64, exact=True)

    def nudged_outputs(self, inputs: Sequence[Any], generator: torch.Generator) -> Iterator[list[torch.Tensor]]:
        """Yield float64 outputs three times, at inputs and weights that are moved by about ``NUDGE`` of each. Their
        differences from the exact ones show how large the terms are that an output is a sum of."""
        assert self._model64 is not None
        for _ in range(_NUDGES):
            moved = [_nudged(in_double(value), generator) for value in inputs]
            with torch.no_grad(), self._exactly(), self._nudged_weights(generator):
                outputs = _exact(_call(self._model64, moved))
            yield outputs

    def nudged_gradients(
        self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor], generator: torch.Generator
    ) -> Iterator[GradientSlice]:
        """Yield float64 gradients likewise, at upstream gradients that are moved as well."""
        assert self._model64 is not None
        for _ in range(_NUDGES):
            moved = [_nudged(in_double(value), generator) for value in inputs]
            moved_upstream = [_nudged(in_double(gradient), generator) for gradient in upstream]
            with self._exactly(), self._nudged_weights(generator):
                found = self._differentiate(self._model64, moved, moved_upstream, exact=True)
            yield found
            del found, moved, moved_upstream

    @contextlib.contextmanager
    def _nudged_weights(self, generator: torch.Generator) -> Iterator[None]:
        """Move the weights of the float64 model meanwhile, and restore them afterwards."""
        assert self._model is not None
        assert self._model64 is not None
        pairs = list(zip(self._model64.parameters(), self._model.parameters(), strict=True))
        with torch.no_grad():
            for exact, _ in pairs:
                if is_differentiable(exact):
                    exact.copy_(_nudged(exact, generator))
        try:
            yield
        finally:
            with torch.no_grad():
                for exact, own in pairs:
                    if is_differentiable(exact):
                        exact.copy_(own)

    @contextlib.contextmanager
    def _exactly(self) -> Iterator[None]:
        """Have the float64 model compute in float64 despite its casts, with the constants of its own precision."""
        uncast = _Uncast(self._dtype if self._rounds else None) if self._casts else contextlib.nullcontext()
        constants = _finfo_of(self._dtype) if self._asks_limits else contextlib.nullcontext()
        with _default_dtype(torch.float64), uncast, constants:
            yield

    def _find_signature(self) -> Signature:
        """Run everything on the meta device, which knows shapes and computes nothing. Raises ``ProblemError``."""
        try:
            model, arguments = self.on_meta()
            self._refuse({f"input {index}": value for index, value in enumerate(arguments)})
            self._refuse({f"the parameter {name}": parameter for name, parameter in model.named_parameters()})
            forward = Footprint()
            outputs, seen = _call_and_look(model, arguments, forward)
            self._refuse({f"output {index}": value for index, value in enumerate(outputs)})
            self._refuse_slices(arguments, outputs)
        except ProblemError:
            raise
        except Exception as error:
            raise ProblemError(f"the reference cannot be run to find its shapes: {error}") from error
        return Signature(
            inputs=tuple(
                TensorSpec.laid_out(value) if isinstance(value, torch.Tensor) else {"value": value}
                for value in arguments
            ),
            outputs=tuple(TensorSpec.of(output) for output in outputs),
            weights=tuple((name, TensorSpec.of(parameter)) for name, parameter in model.named_parameters()),
            buffers=tuple(_carried_buffers(model)),
            differentiable=any(output.requires_grad for output in outputs),
            products=seen.products,
            chooses=seen.chooses,
            takes_largest=seen.takes_largest,
            rounds_to_tf32=seen.convolves or any(isinstance(part, torch.nn.RNNBase) for part in model.modules()),
            whole_inputs=frozenset(
                sum(isinstance(before, torch.Tensor) for before in arguments[:place])
                for place, value in enumerate(arguments)
                if place in self._problem.whole_inputs and isinstance(value, torch.Tensor)
            ),
            pooled=self._problem.pooled,
            forward=forward,
        )

    def _refuse_slices(self, arguments: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Raise ``ProblemError`` where the problem's slices of rows cannot be."""
        for index, value in enumerate(outputs):
            if not isinstance(value, torch.Tensor):
                raise ProblemError(f"output {index} of the reference is {type(value).__name__}, and no tensor")
            if self._problem.pooled and not is_differentiable(value):
                raise ProblemError(f"output {index} of the reference is {value.dtype}, which cannot be pooled")
        for place in self._problem.whole_inputs:
            if place >= len(arguments) or not isinstance(arguments[place], torch.Tensor):
                raise ProblemError(f"argument {place} in reference.whole_inputs is no tensor of the reference")

    def _refuse(self, named: Mapping[str, Any]) -> None:
        """Raise ``ProblemError`` for a tensor among these that cannot be judged."""
        for name, value in named.items():
            reason = unjudged(value) if isinstance(value, torch.Tensor) else None
            if reason is None and self._dtype is not torch.float32 and _is_complex(value):
                reason = "it is complex, which float32 alone is known for"
            if reason is not None:
                raise ProblemError(f"{name} of the reference cannot be judged: {reason}")

    def on_meta(self) -> tuple[torch.nn.Module, list[Any]]:
        """Return the model and its arguments on the meta device, in the problem's precision; floating-point arguments
        require gradients. Raises the errors of the reference."""
        # Executed anew: what the source keeps, such as a generator of its own, is left as the runners find it.
        module = _execute(self._problem, self._size)
        with torch.device("meta"):
            values = list(module.get_inputs())
            try:
                model: torch.nn.Module | None = module.Model(*module.get_init_inputs())
            except (RuntimeError, NotImplementedError):
                model = None
        if model is None:
            # A constructor may read values, which do not exist on the meta device.
            model = module.Model(*module.get_init_inputs()).to("meta")
            assert isinstance(model, torch.nn.Module)
        if self._dtype is not torch.float32:
            model = model.to(self._dtype)
        return model, [self._on_meta(value) for value in values]

    def inputs_on_meta(self) -> list[Any]:
        """Return a draw of ``get_inputs`` on the meta device, in its own dtypes. It is none of the judge's draws."""
        with torch.device("meta"):
            return list(_execute(self._problem, self._size).get_inputs())

    def constructed(self, values: Sequence[Any]) -> tuple[torch.nn.Module, list[Any]]:
        """Return the model as ``construct`` left it, and ``values`` as its arguments: as ``on_meta``, on the device."""
        assert self._model is not None
        return self._model, [_as_argument(value, self._dtype) for value in values]

    def _make(self, seed: int) -> torch.nn.Module:
        seed_generators(seed)
        model: torch.nn.Module = self._module.Model(*self._module.get_init_inputs())
        return model

    def _placed(self, model: torch.nn.Module) -> torch.nn.Module:
        return model.to(self._device) if self._dtype is torch.float32 else model.to(self._device, self._dtype)

    def _on_meta(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return _as_argument(value.to("meta"), self._dtype)


def _state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _carried_buffers(model: torch.nn.Module) -> Iterator[tuple[str, TensorSpec]]:
    """Yield the floating-point buffers that are part of the model's state, up to the limit of the protocol."""
    room = MAX_TENSORS - len(list(model.parameters()))
    lasting = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if room > 0 and name in lasting and buffer.is_floating_point():
            room -= 1
            yield name, TensorSpec.of(buffer)


def _is_far_from_infinite(tensor: torch.Tensor) -> bool:
    if not is_differentiable(tensor):
        return True
    return float(tensor.abs().amax()) <= torch.finfo(tensor.dtype).max / _FAR  # NaN is not


def _call_and_look(
    model: torch.nn.Module, arguments: Sequence[Any], footprint: Footprint
) -> tuple[list[torch.Tensor], _Seen]:
    """Return the results of a call, and the facts about its operators."""
    seen = _Seen()  # type: ignore[no-untyped-call] # torch leaves its base unannotated
    # A model that compiles itself may refuse to be watched: it counts as one without any of these operators.
    with contextlib.suppress(Exception), footprint, seen:
        return _as_list(model(*arguments)), seen
    return _as_list(model(*arguments)), seen


@contextlib.contextmanager
def _finfo_of(dtype: torch.dtype) -> Iterator[None]:
    """Give a model that asks for the limits of float64, in which it computes here, those of ``dtype``: an epsilon that
    it adds is a part of its function."""
    usual = torch.finfo

    def finfo(asked: torch.dtype | None = None) -> torch.finfo:
        return usual(dtype if asked in (None, torch.float64) else asked)

    with patch.object(torch, "finfo", finfo):
        yield


class _Uncast(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Make numbers float64 where a reference asks for less, because the right answer does not depend on its rounding.

    ``precision``: the problem's, where right answers depend on rounding. Numbers of fewer bits are rounded to these
    then, and stored as float64.
    """

    def __init__(self, precision: torch.dtype | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._precision = precision

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        dtype = kwargs.get("dtype")
        if dtype not in _EXACT:
            return func(*args, **kwargs)
        if self._precision is not None and torch.finfo(dtype).eps > torch.finfo(self._precision).eps:
            return func(*args, **kwargs).to(_EXACT[dtype])
        return func(*args, **(kwargs | {"dtype": _EXACT[dtype]}))


def _saturated(run: Callable[[], _Found]) -> _Found | None:
    """Return the result of ``run`` with numbers held where they overflow; ``None`` where an operator does not allow
    that. A run that only excuses a candidate ends no evaluation. Only a lack of memory is raised."""
    try:
        with Saturating():
            return run()
    except torch.OutOfMemoryError:
        raise
    except (ProblemError, RuntimeError, TypeError):
        return None


def _is_otherwise(exact: torch.Tensor, rounded: torch.Tensor) -> bool:
    """Whether two float64 tensors of one shape differ by more than rounding, where both are finite."""
    if not exact.is_floating_point():
        return False
    finite = exact.isfinite() & rounded.isfinite()
    between, size = (torch.where(finite, each, 0.0) for each in (exact - rounded, rounded))
    return bool(torch.linalg.vector_norm(between) > _OTHERWISE * torch.linalg.vector_norm(size))


class _Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Move the results of rounding operators by up to ``relative`` of them, at random, forward and backward. Operators
    that copy or choose are left alone, since a reference may compare their results."""

    def __init__(self, relative: float, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._relative = relative
        self._generator = generator

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        if name not in _ROUNDING and not name.endswith("_backward"):
            return found
        for result in found if isinstance(found, tuple | list) else (found,):
            if _can_be_moved(result):
                shares = torch.rand(result.shape, generator=self._generator, device=result.device, dtype=torch.float64)
                result.mul_(shares.mul_(2.0).sub_(1.0).mul_(self._relative).add_(1.0))
        return found


class _SoftmaxRounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Move the exponents of each softmax, and the results of its logarithm, by up to ``rounding`` times the logarithm
    of the sum: all of one sum alike, at random.

    The operator subtracts the largest number first, and so is equally exact for numbers of any size. A kernel that
    keeps the logarithm of the sum, as a fused attention does for its backward, rounds that number. It is as large as
    the largest input.
    """

    def __init__(self, rounding: float, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rounding = rounding
        self._generator = generator

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name not in _SOFTMAXES or not _can_be_moved(found) or not found.numel():
            return found
        total = torch.logsumexp(args[0].double(), args[1], keepdim=True)
        shares = torch.rand(total.shape, generator=self._generator, device=total.device, dtype=torch.float64)
        largest = torch.where(total.isfinite(), total, 0.0).abs_().mul_(self._rounding).clamp_(max=_MAX_SHIFT)
        moves = largest.mul_(shares.mul_(2.0).sub_(1.0))
        return found.add_(moves) if name == "aten::_log_softmax" else found.mul_(moves.exp_())


def _can_be_moved(result: Any) -> bool:
    if not isinstance(result, torch.Tensor) or result.dtype not in (torch.float64, torch.complex128):
        return False
    return result.layout is torch.strided and not shares_elements(result.shape, result.stride())


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Note whether the operators include matrix products, convolutions and choices: of an index, of the largest."""

    products = False
    chooses = False
    takes_largest = False
    convolves = False

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.convolves = self.convolves or (
            func.overloadpacket is torch.ops.aten.convolution and args[0].dtype is torch.float32
        )
        self.products = self.products or func.overloadpacket in _PRODUCTS
        self.chooses = self.chooses or func._schema.name in _CHOICES
        self.takes_largest = self.takes_largest or func._schema.name in _LARGEST or "max_pool" in func._schema.name
        return func(*args, **(kwargs or {}))


def _as_argument(value: Any, dtype: torch.dtype) -> Any:
    """Return ``value`` in ``dtype``, where that is a lower precision than the usual one; otherwise in its own."""
    if not is_differentiable(value):
        return value
    kept = dtype is torch.float32 or value.is_complex()
    return (value.detach() if kept else value.detach().to(dtype)).requires_grad_()


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _model_in_double(model: torch.nn.Module) -> torch.nn.Module:
    converted: torch.nn.Module = model._apply(in_double)  # type: ignore[no-untyped-call] # double() leaves complex out
    return converted


def _exact(result: Any) -> list[torch.Tensor]:
    """Return the outputs of the model in float64, for real and complex ones alike."""
    return [as_reals(_as_exact(output)) for output in _as_list(result)]


def _as_exact(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64, even where the reference itself has made it less exact."""
    return tensor.double() if tensor.is_floating_point() else in_double(tensor)


def _execute(problem: Problem, size: str) -> types.ModuleType:
    module = types.ModuleType("reference")
    try:
        exec(compile(problem.sized_source(size), f"{problem.id}/reference.py", "exec"), module.__dict__)  # noqa: S102 - a problem is trusted
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(f"the reference of {problem.id} cannot be executed: {error}") from error
    return module


def _keeps_functions(model: torch.nn.Module) -> bool:
    """Whether an attribute of the model or of a part of it is a function that refers to something."""
    return any(
        isinstance(value, types.FunctionType) and value.__closure__
        for part in model.modules()
        for value in vars(part).values()
    )


@contextlib.contextmanager
def _of_the_reference(where: str) -> Iterator[None]:
    """Attribute errors of the reference to the problem, and not to the judge. Failures of a device and a lack of memory
    are attributed to neither."""
    try:
        yield
    except (ProblemError, torch.OutOfMemoryError, torch.AcceleratorError, MemoryError):
        raise
    except Exception as error:
        if any(words in str(error) for words in _NOT_OF_THE_REFERENCE):
            raise
        raise ProblemError(f"the reference fails {where}: {type(error).__name__}: {error}") from error


def _call(model: torch.nn.Module, inputs: Sequence[Any]) -> Any:
    with _of_the_reference("in its forward pass"):
        return model(*inputs)


def _differentiate(
    model: torch.nn.Module, inputs: Sequence[Any], upstream: Sequence[torch.Tensor], *, exact: bool = False
) -> GradientSlice:
    leaves = [value.detach().requires_grad_() if is_differentiable(value) else value for value in inputs]
    inputs_wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    weights = list(model.parameters())
    trained = [weight for weight in weights if weight.requires_grad]
    outputs = _as_list(_call(model, leaves))
    pairs = [
        (output, gradient.to(output.dtype))
        for output, gradient in zip(outputs, upstream, strict=True)
        if output.requires_grad
    ]
    with _of_the_reference("in its backward pass"):
        gradients = torch.autograd.grad(
            [output for output, _ in pairs],
            [*inputs_wanted, *trained],
            [gradient for _, gradient in pairs],
            allow_unused=True,
        )
    of_weights = iter(gradients[len(inputs_wanted) :])

    def plain(gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return None
        # An embedding may have a sparse one.
        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        return as_reals(_as_exact(dense) if exact else dense)

    return GradientSlice(
        [as_reals(_as_exact(output.detach()) if exact else output.detach()) for output in outputs],
        [plain(gradient) for gradient in gradients[: len(inputs_wanted)]],
        [plain(next(of_weights)) if weight.requires_grad else None for weight in weights],
    )


def _moved(inputs: Sequence[Any], relative: float, generator: torch.Generator) -> Iterator[list[Any]]:
    """Yield the inputs in float64, moved by ± ``relative`` times their magnitude, with random signs: two dozen
    times."""
    exact = [in_double(value) for value in inputs]
    for _ in range(_PERTURBATIONS):
        moves = [_random_move(value, relative, generator) for value in exact]
        for sign in (1.0, -1.0):
            yield [
                value if move is None else torch.add(value, move, alpha=sign)
                for value, move in zip(exact, moves, strict=True)
            ]


def _nudged(value: Any, generator: torch.Generator) -> Any:
    """Return a tensor in float64 or complex128 with each element moved by a normal share of it; any other value
    unchanged."""
    if not is_differentiable(value):
        return value
    # The sizes vary: two about equal terms with opposite signs would move alike in half of the cases.
    shares = torch.randn(value.shape, generator=generator, device=value.device, dtype=torch.float64)
    return shares.mul_(NUDGE).add_(1.0) * value


def _beside_zero(value: Any, sign: float | None, generator: torch.Generator) -> Any:
    """Return a tensor in float64 or complex128 with the smallest normal number of float32 in place of exact zeros. It
    has this ``sign`` or random ones. Any other value is returned unchanged."""
    if not is_differentiable(value):
        return value
    exact = in_double(value)
    if sign is None:
        signs = torch.randint(0, 2, exact.shape, generator=generator, device=exact.device).mul_(2).sub_(1)
        return torch.where(exact == 0, signs * _BESIDE_ZERO, exact)
    return torch.where(exact == 0, sign * _BESIDE_ZERO, exact)


def _random_move(value: Any, relative: float, generator: torch.Generator) -> torch.Tensor | None:
    if not is_differentiable(value):
        return None
    if value.is_complex():  # a sign for each part
        parts = _random_move(torch.view_as_real(value.resolve_conj()), relative, generator)
        assert parts is not None
        return torch.view_as_complex(parts)
    signs = torch.randint(0, 2, value.shape, generator=generator, device=value.device, dtype=torch.int8)
    return signs.mul_(2).sub_(1).to(value.dtype).mul_(value).mul_(relative)


def _as_list(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Let factories inside a reference make ``dtype`` too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
