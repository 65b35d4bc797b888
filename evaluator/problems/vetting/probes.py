"""The candidates that a problem is tested with: ordinary sources, judged like a user's.

All of them inherit from the problem's own ``Model``, so that they construct as it does, with its weights. Trivial
candidates return an answer that takes no work (or less precision); a judge that lets one pass cannot tell work from
none. Probes do all the work and examine the reference besides. They raise their findings as ``Finding``, which comes
back as the message of a ``runtime_error``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from evaluator.problems.problem import Problem, Tolerance
from kerneljudge.terms.vetting_labels import Label

__all__ = [
    "ABSENT_CONSTANTS",
    "BACKWARD_PROBE",
    "DRAWS",
    "HALVES",
    "INITIAL_CONSTANTS",
    "INITIAL_RELATIONS",
    "ITSELF",
    "NOISE_TIMES",
    "PROBES",
    "TF32",
    "TRIVIAL",
    "ZERO_GRADIENTS",
    "Finding",
    "Trivial",
    "find",
    "source_of",
]

_COMMON: Final = '''\
import random

import torch

from model import Model, get_init_inputs, get_inputs

ATOL, RTOL = {atol!r}, {rtol!r}
WITH_GRADIENTS = {with_gradients!r}


class Finding(Exception):
    """What is wrong with the reference."""


class Held(torch.autograd.Function):
    """A value as it is, with gradients of zero for all that comes after it."""

    @staticmethod
    def forward(ctx, value, *others):
        ctx.save_for_backward(*others)
        return value.clone()

    @staticmethod
    def backward(ctx, _gradient):
        return None, *(torch.zeros_like(other) for other in ctx.saved_tensors)


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def device_of(inputs):
    return next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))


def copied(inputs):
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]


def outputs_of(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def each(result, change):
    """``change`` of every output, in the form in which they came."""
    changed = [change(output) for output in outputs_of(result)]
    return tuple(changed) if isinstance(result, (tuple, list)) else changed[0]


def held(model, inputs, result):
    """Every floating-point output with gradients of zero."""
    leaves = [tensor for tensor in (*inputs, *model.parameters()) if is_float(tensor) and tensor.requires_grad]
    return each(result, lambda output: Held.apply(output, *leaves) if is_float(output) and leaves else output)


def alone(model, inputs, result):
    """Without a graph, which passes where gradients are not required; else with gradients of zero."""
    result = each(result, lambda output: output.detach())
    return held(model, inputs, result) if WITH_GRADIENTS else result


def with_its_graph(result):
    return result if WITH_GRADIENTS else each(result, lambda output: output.detach())


def changed_floats(result, change):
    """``change`` of every floating-point output. Raises where that leaves all of them as they are."""
    changed = each(result, lambda output: change(output) if is_float(output) else output)
    if all(torch.equal(a, b) for a, b in zip(outputs_of(result), outputs_of(changed))):
        raise ValueError("no output is changed by it")
    return changed


def other_inputs(inputs):
    """What the problem draws another time."""
    with torch.device(device_of(inputs)):
        drawn = get_inputs()
    return [
        other.to(given.device, given.dtype) if isinstance(given, torch.Tensor) else other
        for other, given in zip(drawn, inputs)
    ]


def differs(one, other):
    """``None``, "bits", or how far apart two lists of tensors are in terms of the tolerance."""
    worst = None
    for a, b in zip(one, other):
        if a is None or b is None or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)):
            if (a is None) != (b is None):
                return "a gradient exists in one of them only"
            continue
        worst = worst or "bits"
        a, b = a.double(), b.double()
        scale = a.square().mean().sqrt()
        right = (a - b).abs() <= ATOL * scale + RTOL * a.abs()
        right |= a.isnan() & b.isnan() | (a == b)
        if not bool(right.all()):
            return f"by up to {{float((a - b).abs().max()):.3g}}, at a root mean square of {{float(scale):.3g}}"
    return worst


class ModelNew(Model):
'''

_FRESH: Final = """\
    def fresh(self, inputs, dtype=None):
        \"\"\"A model of the reference's own class with these weights, and nothing remembered.\"\"\"
        # Inputs may be integers alone: then it is as precise as its weights.
        like = next((value for value in (*inputs, *self.parameters()) if is_float(value)), torch.empty(0))
        torch.manual_seed(0)
        model = Model(*get_init_inputs()).to(device_of(inputs), dtype or like.dtype)
        model.load_state_dict(self.state_dict())
        return model

    def leaves(self, inputs):
        return [value.detach().clone().requires_grad_() if is_float(value) else value for value in inputs]

    def gradients(self, model, inputs):
        \"\"\"Of every floating-point input and parameter, under an upstream gradient that is always the same.\"\"\"
        with torch.enable_grad():
            leaves = self.leaves(inputs)
            model.zero_grad(set_to_none=True)
            outputs = [output for output in outputs_of(model(*leaves)) if output.requires_grad]
            upstream = torch.Generator().manual_seed(1)
            drawn = [torch.randn(output.shape, generator=upstream, dtype=output.dtype) for output in outputs]
            if outputs:
                torch.autograd.backward(outputs, [value.to(output.device) for value, output in zip(drawn, outputs)])
        return [leaf.grad for leaf in leaves if is_float(leaf)] + [weight.grad for weight in model.parameters()]

"""

_REFERENCE: Final = """

class Reference(torch.nn.Module):
    \"\"\"The forward pass of the reference, over the weights of ``model``.\"\"\"

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        return Model.forward(self.model, *inputs)
"""

_CONSTANTS: Final = """

def constants_of(model_class):
    \"\"\"Parameters that are the same however a model is constructed, by name. Raises where there are none.\"\"\"
    made = []
    for seed in range(2):
        torch.manual_seed(seed)
        made.append(dict(model_class(*get_init_inputs()).named_parameters()))
    found = {{name: value.detach() for name, value in made[0].items() if torch.equal(value, made[1][name])}}
    if not found:
        raise ValueError("no parameter is always the same after construction")
    return found
"""

_RELATIONS: Final = """

def related_of(weights):
    \"\"\"Names of those whose rows or columns are orthogonal or of one length, and of those that are lengths of another
    one's or its copy.\"\"\"
    found = set()
    for name, value in weights.items():
        matrix = value.flatten(1).double() if value.dim() > 1 else torch.empty(0, 0)
        for vectors in (matrix, matrix.t()):
            some = vectors[:1024]
            products = some @ some.t()
            lengths = products.diagonal()
            if len(lengths) < 2 or not lengths.min() > 0:
                continue
            close = 1e-4 * lengths.mean()
            alike = bool((lengths - lengths.mean()).abs().max() <= close)
            apart = bool((products - lengths.diag()).abs().max() <= close) and len(some) <= some.shape[1]
            found |= {{name}} if alike or apart else set()
            squares = vectors.square().sum(1)
            for other, given in weights.items():
                if other != name and given.numel() == len(squares):
                    is_length = torch.allclose(given.flatten().double().square(), squares, rtol=1e-4)
                    found |= {{name, other}} if is_length else set()
        for other, given in weights.items():
            turned = given.t() if given.dim() == 2 else given
            if other != name and (torch.equal(value, given) or torch.equal(value, turned)):
                found |= {{name, other}}
    return found
"""

_BODIES: Final = {
    "itself": """\
    pass
""",
    "zeros": """\
    def forward(self, *inputs):
        return alone(self, inputs, each(super().forward(*inputs), torch.zeros_like))
""",
    "constant": """\
    def forward(self, *inputs):
        with torch.no_grad():
            result = super().forward(*other_inputs(inputs))
        return alone(self, inputs, each(result, lambda output: torch.full_like(output, output.double().mean().item())))
""",
    "identity": """\
    def forward(self, *inputs):
        def first_like(output):
            like = [value for value in inputs if isinstance(value, torch.Tensor) and value.shape == output.shape]
            return like[0] if like else inputs[0]

        return with_its_graph(each(super().forward(*inputs), first_like))
""",
    "other inputs": """\
    def forward(self, *inputs):
        with torch.no_grad():
            result = super().forward(*other_inputs(inputs))
        return alone(self, inputs, result)
""",
    "first row": """\
    def forward(self, *inputs):
        def repeated(output):
            if output.dim() == 0 or output.shape[0] < 2:
                raise ValueError("the output has no second row")
            return output[:1].expand_as(output).contiguous()

        return with_its_graph(each(super().forward(*inputs), repeated))
""",
    "half of the answer": """\
    def forward(self, *inputs):
        return with_its_graph(changed_floats(super().forward(*inputs), lambda output: output * 0.5))
""",
    "one and a half of the answer": """\
    def forward(self, *inputs):
        return with_its_graph(changed_floats(super().forward(*inputs), lambda output: output * 1.5))
""",
    "noise": """\
    def forward(self, *inputs):
        def noisy(output):
            exact = output.detach().double()
            finite = exact[exact.isfinite()]
            limit = ATOL * finite.square().mean().sqrt() + RTOL * exact.abs()
            sign = torch.randint(0, 2, output.shape, device=output.device) * 2 - 1
            return output + ({times} * limit * sign).nan_to_num(0.0, 0.0, 0.0).to(output.dtype)

        return with_its_graph(changed_floats(super().forward(*inputs), noisy))
""",
    "no ordinary elements": """\
    def forward(self, *inputs):
        def emptied(output):
            size = output.detach().double().abs()
            counted = size[size.isfinite() & (size > 0)]
            if counted.numel() < 2:
                return output
            ordinary = (size <= counted.median()) & (size < counted.square().mean().sqrt())
            return output.masked_fill(ordinary, 0.0)

        return with_its_graph(changed_floats(super().forward(*inputs), emptied))
""",
    "first answer": """\
    def forward(self, *inputs):
        result = super().forward(*inputs)
        if not hasattr(self, "first"):
            self.first = each(result, lambda output: output.detach().clone())
        return alone(self, inputs, each(self.first, torch.clone))
""",
    "initial constants": """\
    def forward(self, *inputs):
        constant = constants_of(Model)
        weights = {{
            f"model.{{name}}": constant[name].to(value.device, value.dtype) if name in constant else value
            for name, value in (*self.named_parameters(), *self.named_buffers())
        }}
        return with_its_graph(torch.func.functional_call(Reference(self), weights, inputs))
"""
    + _REFERENCE
    + _CONSTANTS,
    "absent constants": """\
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.absent = []
        for name, value in constants_of(Model).items():
            owner, _, short = name.rpartition(".")
            self.absent.append((self.get_submodule(owner), short))
            del self.absent[-1][0]._parameters[short]
            setattr(*self.absent[-1], value)

    def forward(self, *inputs):
        like = next((value for value in (*inputs, *self.parameters()) if is_float(value)), torch.empty(0))
        for owner, name in self.absent:
            setattr(owner, name, getattr(owner, name).to(device_of(inputs), like.dtype))
        return with_its_graph(super().forward(*inputs))
"""
    + _CONSTANTS,
    "initial relations": """\
    def __init__(self, *arguments):
        super().__init__(*arguments)
        first = {{name: value.detach().clone() for name, value in self.named_parameters()}}
        related = related_of(first)
        if not related:
            raise ValueError("no parameter is seen to be related to itself or another")
        self.first = {{name: first[name] for name in related}}

    def forward(self, *inputs):
        weights = {{
            f"model.{{name}}": self.first[name].to(value.device, value.dtype) if name in self.first else value
            for name, value in (*self.named_parameters(), *self.named_buffers())
        }}
        return with_its_graph(torch.func.functional_call(Reference(self), weights, inputs))
"""
    + _REFERENCE
    + _RELATIONS,
    "tf32": """\
    def forward(self, *inputs):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        return with_its_graph(super().forward(*inputs))
""",
    "zero gradients": """\
    def forward(self, *inputs):
        with torch.no_grad():
            result = super().forward(*inputs)
        return held(self, inputs, result)
""",
    "float64": _FRESH
    + """\
    def forward(self, *inputs):
        model = self.fresh(inputs, torch.float64)
        exact = [value.double() if is_float(value) else value for value in inputs]
        torch.set_default_dtype(torch.float64)
        try:
            with torch.no_grad():
                model(*copied(exact))
        except Exception as error:
            raise Finding(f"reference_fails: in float64, {{type(error).__name__}}: {{error}}") from None
        finally:
            torch.set_default_dtype(torch.float32)
        return super().forward(*inputs)
""",
    "draws": """\
    def forward(self, *inputs):
        result = super().forward(*inputs)
        given = [value.clone() for value in inputs if isinstance(value, torch.Tensor)]
        made = [output.detach().clone() for output in outputs_of(result)]
        if not hasattr(self, "first"):
            self.first = given, made
        elif all(torch.equal(a, b) for a, b in zip(given, self.first[0])):
            raise Finding("inputs_repeat: two calls have had the same inputs")
        elif differs(self.first[1], made) is None:
            raise Finding("output_constant: two calls with different inputs have one output, bit by bit")
        return with_its_graph(result)
""",
    "repeated": _FRESH
    + """\
    def forward(self, *inputs):
        results = []
        for _ in range(3):
            model = self.fresh(inputs)
            torch.seed()
            with torch.no_grad():
                results.append(outputs_of(model(*copied(inputs))))
        for later in results[1:]:
            found = differs(results[0], later)
            if found is not None and found != "bits":
                raise Finding(f"nondeterministic: two calls on the same input differ {{found}}")
        if any(differs(results[0], later) for later in results[1:]):
            raise Finding("rounding_varies: two calls on the same input differ in their last bits")
        return super().forward(*inputs)
""",
    "repeated backward": _FRESH
    + """\
    def forward(self, *inputs):
        results, begin = [], ""
        try:
            for _ in range(2):
                model = self.fresh(inputs)
                torch.seed()
                results.append(self.gradients(model, inputs))
            begin = "when a model is called again, "
            self.gradients(model, inputs)
        except Exception as error:
            raise Finding(f"backward_fails: {{begin}}{{type(error).__name__}}: {{error}}") from None
        found = differs(*results)
        if found == "bits":
            raise Finding("rounding_varies: gradients of two calls on the same input differ in their last bits")
        if found is not None:
            raise Finding(f"backward_nondeterministic: gradients of two calls on the same input differ {{found}}")
        return super().forward(*inputs)
""",
    "state": _FRESH
    + """\
    def forward(self, *inputs):
        model = self.fresh(inputs)
        state = dict((*model.named_parameters(), *model.named_buffers()))
        before = {{name: value.detach().clone() for name, value in state.items()}}
        results = []
        for _ in range(3):
            torch.manual_seed(2)
            random.seed(2)
            with torch.no_grad():
                results.append(outputs_of(model(*copied(inputs))))
        for later in results[1:]:
            found = differs(results[0], later)
            if found is not None and found != "bits":
                raise Finding(f"output_drifts: what later calls on the same input return differs {{found}}")
        after = dict((*model.named_parameters(), *model.named_buffers()))
        changed = [name for name, value in before.items() if differs([value], [after[name].detach()]) is not None]
        if changed:
            raise Finding(f"keeps_state: a call changes {{', '.join(changed)}}")
        return super().forward(*inputs)
""",
}

_HALF: Final = """\
    def forward(self, *inputs):
        low = torch.{precision}
        weights = {{
            f"model.{{name}}": value.to(low) if is_float(value) else value
            for name, value in (*self.named_parameters(), *self.named_buffers())
        }}
        lowered = [value.to(low) if is_float(value) else value for value in inputs]
        result = torch.func.functional_call(Reference(self), weights, tuple(lowered))
        raised = next((value.dtype for value in inputs if is_float(value)), torch.float32)
        return with_its_graph(each(result, lambda output: output.to(raised) if is_float(output) else output))
"""

_FOUND: Final = re.compile(r"(?:\w+\.)*Finding: ([a-z_]+): (.*)", re.DOTALL)
_FRAME: Final = "\n  candidate.py, line "


@dataclass(frozen=True)
class Trivial:
    """A trivial candidate, the label for passing with all inputs, and that for passing with the given ones alone."""

    name: str
    passes: Label
    passes_on_given_inputs: Label


@dataclass(frozen=True)
class Finding:
    """A finding of a probe."""

    label: Label
    message: str


ITSELF: Final = "itself"
DRAWS: Final = "draws"
PROBES: Final = ("float64", DRAWS, "repeated", "state")
BACKWARD_PROBE: Final = "repeated backward"

TRIVIAL: Final = (
    Trivial("zeros", Label.ZEROS_PASS, Label.ZEROS_PASS_ON_GIVEN_INPUTS),
    Trivial("constant", Label.CONSTANT_PASSES, Label.CONSTANT_PASSES_ON_GIVEN_INPUTS),
    Trivial("identity", Label.IDENTITY_PASSES, Label.IDENTITY_PASSES_ON_GIVEN_INPUTS),
    Trivial("other inputs", Label.INPUT_INDEPENDENT, Label.INPUT_INDEPENDENT_ON_GIVEN_INPUTS),
    Trivial("half of the answer", Label.SCALED_ANSWER_PASSES, Label.SCALED_ANSWER_PASSES_ON_GIVEN_INPUTS),
    Trivial("one and a half of the answer", Label.SCALED_ANSWER_PASSES, Label.SCALED_ANSWER_PASSES_ON_GIVEN_INPUTS),
    Trivial("noise", Label.NOISE_PASSES, Label.NOISE_PASSES_ON_GIVEN_INPUTS),
    Trivial("no ordinary elements", Label.ORDINARY_ELEMENTS_LEFT_OUT, Label.ORDINARY_ELEMENTS_LEFT_OUT_ON_GIVEN_INPUTS),
    Trivial("first answer", Label.FIRST_ANSWER_PASSES, Label.FIRST_ANSWER_PASSES_ON_GIVEN_INPUTS),
    Trivial("first row", Label.FIRST_ROW_REPEATED_PASSES, Label.FIRST_ROW_REPEATED_PASSES_ON_GIVEN_INPUTS),
)
HALVES: Final = ("float16", "bfloat16")
TF32: Final = "tf32"
INITIAL_CONSTANTS: Final = "initial constants"
ABSENT_CONSTANTS: Final = "absent constants"
INITIAL_RELATIONS: Final = "initial relations"
NOISE_TIMES: Final = 20.0
"""The size of the noise that must not pass, in stated limits: more than a limit is ever widened to as a whole."""
ZERO_GRADIENTS: Final = "zero gradients"


def source_of(name: str, problem: Problem, precision: str, settled: Tolerance | None = None) -> str:
    """Return the source of the candidate called ``name``, for ``problem`` at ``precision``. ``settled``: the tolerance
    of its outputs, where that is not the problem's."""
    tolerance = settled or problem.tolerance(precision)
    body = (_HALF + _REFERENCE if name in HALVES else _BODIES[name]).format(precision=name, times=NOISE_TIMES)
    common = _COMMON.format(
        atol=tolerance.atol, rtol=tolerance.rtol, with_gradients=problem.gradient_policy == "require"
    )
    return common + body


def find(message: str) -> Finding | None:
    """Read a probe's finding from the message of its verdict; ``None`` where it found nothing."""
    found = _FOUND.match(message)
    return None if found is None else Finding(Label(found[1]), found[2].split(_FRAME)[0].strip())
