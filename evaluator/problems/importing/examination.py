"""The examination of a foreign reference, in a sandboxed process that executes it.

The text of this file is a candidate's module there, with a call of ``report`` at its end: it must need nothing of this
project. Sizes are found on torch's meta device, which knows shapes and computes nothing. At the smallest of them the
reference is run on the CPU. The report was made beside foreign code, and is not believed as it is.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, pairwise
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

__all__ = ["examine", "report"]

_SIZES: Final = "_SIZES"
_TOLERANCE: Final = 1e-4
_GRADIENT_TOLERANCE: Final = 1e-2
_EXACT: Final = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
_PLAIN: Final = (bool, int, float, str, type(None))
_STEPS_BACK: Final = 4
_NORMALISED: Final = 16
"""The fewest values that a normalisation should share: two values always become plus and minus one."""
_UNBOUNDED: Final = 2**62
_ROW_TOLERANCE: Final = 1e-9
_ROW_FLOOR: Final = 1e-12
"""The tolerated difference of a row in float64, because fewer rows are summed in another order. The first is a share of
its largest number, the second an absolute value for pure rounding.
"""
_ROW_DRAWS: Final = 2
_ROW_BITS: Final = 10
_ROWS_LARGE: Final = 8.0
_ROWS_S: Final = 10.0
"""The limits of the test of rows: it is left out where a call costs more than ``_ROWS_LARGE`` times the ``smoke``
limit. It fails after ``_ROWS_S`` seconds of processor time, for a way besides independent rows after half of that.
"""
_ROW_INPUTS: Final = 4
"""With more tensors, only independent rows are tested: there are too many ways to cut some of them alone."""
_PARAMETER: Final = -1
_UNSLICED: Final = {"row_independent": False, "whole_inputs": [], "pooled": ""}
_MESSAGE_CHARACTERS: Final = 300

Values = dict[str, int]
_Way = tuple[frozenset[int], str]
"""The arguments that each slice of rows has as a whole, and how outputs follow from the slices' own (see ``Problem``).
"""


class _Refused(Exception):
    """The reason why the reference cannot be a problem."""


@dataclass(frozen=True)
class _Cost:
    """The cost of a forward pass.

    ``bytes``: inputs, parameters and everything that operators write. ``normalised``: the least number of values that a
    normalisation shares.
    """

    bytes: int
    operations: int
    normalised: int = _UNBOUNDED

    def share(self, limit: _Cost) -> float:
        """Return the share of ``limit`` that this cost has: 1 where it is reached."""
        return max(self.bytes / limit.bytes, self.operations / limit.operations)


def report(request: Mapping[str, Any]) -> None:
    """Print the findings of ``examine``, as one line that begins with the request's mark."""
    own = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    # The reference's own output must not be the part of the log that is kept.
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        found = examine(request)
    except _Refused as error:
        found = {"refused": str(error)}
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything
        found = {"refused": f"looking at it fails: {_said(error)}"}
    os.write(own, f"\n{request['mark']}{json.dumps(found)}\n".encode())


def examine(request: Mapping[str, Any]) -> dict[str, Any]:
    """Examine the reference, and return the findings. Raises ``_Refused``.

    ``request`` has:

    - ``source``: the reference, with constants that are looked up in ``_SIZES``, and their published ``values``;
    - ``shrink``: the names of the constants to halve, and their ``floors``;
    - ``groups``: constants that are halved along with the ones that they divide;
    - ``smoke``: its limits; ``scale``, which may be null;
    - ``drawn``: whether any inputs are as fair as those of ``get_inputs``.
    """
    reference = _Reference(request["source"])
    values: Values = dict(request["values"])
    reference.load(values)
    found, full = reference.shapes()
    found["full"] = {"bytes": full.bytes, "operations": full.operations}
    shrinking = _Shrinking(reference, values, request["shrink"], request["floors"], request["groups"])
    limit = _Cost(request["smoke"]["bytes"], request["smoke"]["operations"])
    steps = list(shrinking.steps(full, limit))
    smoke = found["smoke"] = _try_on_cpu(reference, steps)
    backward = found["differentiable"] and not smoke["backward"]
    small = _Cost(smoke["bytes"], smoke["operations"]).share(limit) <= _ROWS_LARGE
    smoke |= _slices(reference, drawn=request["drawn"], backward=backward) if small else _UNSLICED
    if request["scale"] is not None:
        wanted = _Cost(max(1, int(full.bytes * request["scale"])), max(1, full.operations))
        values, cost = list(shrinking.steps(full, wanted))[-1]
        found["scaled"] = {"values": values, "bytes": cost.bytes, "operations": cost.operations}
    return found


class _Reference:
    """A module that is executed anew for other sizes."""

    def __init__(self, source: str) -> None:
        try:
            self._code = compile(source, "reference.py", "exec")
        except (SyntaxError, ValueError) as error:
            raise _Refused(f"it does not parse: {error}") from None
        self._module = types.ModuleType("reference")

    def load(self, values: Values) -> None:
        """Execute the module with its constants at ``values``. Raises ``_Refused``."""
        self._module = types.ModuleType("reference")
        self._module.__dict__[_SIZES] = values
        sys.modules["reference"] = self._module
        try:
            exec(self._code, self._module.__dict__)  # noqa: S102 - in the sandbox, which is what it is for
        except ModuleNotFoundError as error:
            raise _Refused(f"it needs the package {error.name}, which is not installed here") from None
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit included
            raise _Refused(f"importing it fails: {_said(error)}") from None

    def init_inputs(self) -> list[Any]:
        given = self._module.get_init_inputs()
        if not isinstance(given, list | tuple):
            raise _Refused(f"get_init_inputs() returns {_kind(given)}, not a list: only positional arguments are known")
        return list(given)

    def inputs(self) -> list[Any]:
        given = self._module.get_inputs()
        if not isinstance(given, list | tuple):
            raise _Refused(f"get_inputs() returns {_kind(given)}, not a list")
        return list(given)

    def model(self, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        made = self._module.Model(*self.init_inputs())
        if not isinstance(made, torch.nn.Module):
            raise _Refused("Model is no torch.nn.Module")
        return made

    def on_meta(self) -> tuple[torch.nn.Module, list[Any]]:
        """Return model and arguments on the meta device, as the judge makes them to find shapes."""
        with torch.device("meta"):
            inputs = self.inputs()
            try:
                model: torch.nn.Module | None = self.model(0)
            except (RuntimeError, NotImplementedError):
                model = None
        if model is None:
            model = self.model(0).to("meta")  # its constructor may look at values
        return model, [_leaf(value.to("meta")) if isinstance(value, torch.Tensor) else value for value in inputs]

    def shapes(self) -> tuple[dict[str, Any], _Cost]:
        """Return inputs and outputs, and the cost of a forward pass. Raises ``_Refused``."""
        try:
            model, inputs = self.on_meta()
            result, cost = _counted(model, inputs)
        except _Refused:
            raise
        except Exception as error:  # noqa: BLE001 - foreign code
            raise _Refused(f"its shapes cannot be found without computing it: {_said(error)}") from None
        odd = [value for value in inputs if not isinstance(value, (torch.Tensor, *_PLAIN))]
        if odd:
            raise _Refused(f"an input is {_kind(odd[0])}: tensors, numbers and texts are known")
        outputs = _outputs(result)
        if any(not isinstance(output, torch.Tensor) for output in outputs):
            raise _Refused(f"it returns {_kind(result)}: a tensor is known, and a flat tuple or list of tensors")
        for what, tensors in (("an input is", inputs), ("it returns what is", outputs)):
            if any(isinstance(value, torch.Tensor) and _is_unknown(value) for value in tensors):
                raise _Refused(f"{what} sparse, nested, quantized or complex32: other tensors are known")
        found = {
            "inputs": [_described(value) for value in inputs],
            "outputs": [_described(output) for output in outputs],
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "differentiable": any(output.requires_grad for output in outputs),
            "batch_norm": any(
                isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.track_running_stats
                for part in model.modules()
            ),
        }
        return found, cost

    def cost(self) -> _Cost:
        """Return the cost of a forward pass. Raises the reference's own errors."""
        with torch.no_grad():
            return _counted(*self.on_meta())[1]


def _counted(model: torch.nn.Module, inputs: Sequence[Any]) -> tuple[Any, _Cost]:
    """Call the model on the meta device; return its outputs and the call's cost."""
    tensors = [value for value in (*inputs, *model.parameters()) if isinstance(value, torch.Tensor)]
    with _Counter() as counter:
        result = model(*inputs)
    return result, _Cost(counter.bytes + sum(map(_size, tensors)), counter.operations, counter.normalised)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that operators return, views excepted, the operations, and the values that normalisations share.

    Operations are those for which torch has a formula (products and convolutions).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self.operations = 0
        self.normalised = _UNBOUNDED

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.operations += int(formula(*args, **(kwargs or {}), out_val=result))
        if "batch_norm" in func.name():  # that of an instance, too
            self.normalised = min(self.normalised, args[0].numel() // args[0].shape[1])
        elif "group_norm" in func.name():
            samples, groups = args[3], args[6]
            self.normalised = min(self.normalised, args[0].numel() // (samples * groups))
        if not func.is_view:
            self.bytes += sum(_size(leaf) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


@dataclass
class _Shrinking:
    """Halves constants, the largest first, as long as the reference runs and costs less."""

    reference: _Reference
    values: Values
    names: Sequence[str]
    floors: Mapping[str, int]
    groups: Sequence[str]
    tried: dict[tuple[int, ...], _Cost | None] = field(default_factory=dict)

    def steps(self, cost: _Cost, limit: _Cost) -> Iterator[tuple[Values, _Cost]]:
        """Yield sizes from the published one down to the first within ``limit``, or to the smallest there is."""
        values, stuck, normalised = self.values, set[str](), min(_NORMALISED, cost.normalised)
        yield values, cost
        while cost.share(limit) > 1:
            left = [name for name in self.names if name not in stuck and self._halved(values, name) is not None]
            if not left:
                return
            name = max(left, key=lambda name: (values[name], name))
            for attempt in self._attempts(values, name):
                reached = self._try(attempt)
                if reached and reached.normalised >= normalised and reached.share(limit) < cost.share(limit):
                    values, cost = attempt, reached
                    yield values, cost
                    break
            else:
                stuck.add(name)

    def _attempts(self, values: Values, name: str) -> Iterator[Values]:
        """Yield ``name`` halved, alone at first, then together with others.

        One constant may have to equal the other, or be a multiple of it. So the constants with its value come first,
        one by one and all of them, then the rest.
        """
        equal = [other for other in self.names if other != name and values[other] == values[name]]
        rest = [other for other in self.names if other != name and other not in equal]
        pairs = [[[name, other] for other in others] for others in (equal, rest)]
        seen = [values]
        for together in ([name], *pairs[0], [name, *equal], *pairs[1]):
            attempt = dict(values)
            for each in together:
                half = self._halved(values, each)
                if half is not None:
                    attempt[each] = half
            for group in self.groups:
                # A divisor remains a divisor, and the number in a group stays the same.
                divides = any(values[each] != attempt[each] and values[each] % values[group] == 0 for each in together)
                if divides and values[group] >= _NORMALISED:
                    attempt[group] = values[group] // 2
            if attempt not in seen:
                seen.append(attempt)
                yield attempt

    def _halved(self, values: Values, name: str) -> int | None:
        """Return half of the constant, odd where it is odd: a size that is no multiple of anything should stay so."""
        half = values[name] // 2
        if values[name] % 2 and half % 2 == 0:
            half += 1
        return half if half >= self.floors[name] and half < values[name] else None

    def _try(self, values: Values) -> _Cost | None:
        """Return the cost of these sizes; ``None`` where the reference does not run at them."""
        key = tuple(values.values())
        if key not in self.tried:
            try:
                self.reference.load(values)
                self.tried[key] = self.reference.cost()
            except Exception:  # noqa: BLE001 - foreign code may raise anything
                self.tried[key] = None
        return self.tried[key]


def _try_on_cpu(reference: _Reference, steps: Sequence[tuple[Values, _Cost]]) -> dict[str, Any]:
    """Run the smallest size that runs, and list its oddities. Raises ``_Refused``."""
    failure = ""
    for values, cost in steps[: -_STEPS_BACK - 1 : -1]:
        reference.load(values)
        torch.manual_seed(1)
        inputs = reference.inputs()
        try:
            begin = time.perf_counter()
            with torch.no_grad():
                outputs = _outputs(reference.model(0)(*_copied(inputs)))
            forward_s = time.perf_counter() - begin
        except Exception as error:  # noqa: BLE001 - foreign code
            failure = failure or _said(error)
            continue
        sizes = {"values": values, "bytes": cost.bytes, "operations": cost.operations, "forward_s": forward_s}
        return sizes | _oddities(reference, inputs, outputs)
    raise _Refused(f"a call fails: {failure}")


def _oddities(reference: _Reference, inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Return the oddities of calls on ``inputs``; one call has returned ``outputs``. Raises ``_Refused``."""
    if any(_is_float(output) and not bool(output.isfinite().any()) for output in outputs):
        raise _Refused("not one of its output's elements is finite")
    model, given = reference.model(0), _copied(inputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = _call(model, given, seed=2)
    if _differ(outputs, first):
        raise _Refused(
            "its output is random: two models with the same weights return different outputs for the same input "
            "(dropout that is on, or the like)"
        )
    if _differ(inputs, given):
        raise _Refused("it writes to its inputs")
    if any(_differ(first, _call(model, _copied(inputs), seed=2)) for _ in range(2)):
        raise _Refused("it keeps a state across calls: later calls on the same input return something else")
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    _run_in_double(reference, inputs)
    backward, without = _differentiate(reference, inputs)
    return {"state": changed, "backward": backward, "without_gradient": without}


def _run_in_double(reference: _Reference, inputs: Sequence[Any]) -> None:
    """Run the reference in float64, from which the judge gets its expected values. Raises ``_Refused``."""
    model = _model_in_double(reference)
    exact = [_in_double(value) for value in inputs]
    torch.set_default_dtype(torch.float64)
    try:
        with _Uncast():  # type: ignore[no-untyped-call]
            _call(model, exact, seed=2)
    except Exception as error:  # noqa: BLE001 - foreign code
        raise _Refused(f"it fails in float64, in which the judge computes the right results: {_said(error)}") from None
    finally:
        torch.set_default_dtype(torch.float32)


def _differentiate(reference: _Reference, inputs: Sequence[Any]) -> tuple[str, list[str]]:
    """Return the error of the backward pass, if any, and the parameters that get no gradient from it."""
    model, begin = reference.model(0), ""
    try:
        one, other = (_gradients(fresh, inputs) for fresh in (model, reference.model(0)))
        without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        begin = "when a model is called again, "
        _gradients(model, inputs)
    except Exception as error:  # noqa: BLE001 - foreign code
        return begin + _said(error), []
    if _differ(one, other, _GRADIENT_TOLERANCE):
        return "two calls on the same input have different gradients", []
    return "", without


def _gradients(model: torch.nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model.zero_grad(set_to_none=True)
    leaves = [_leaf(value) for value in _copied(inputs)]
    outputs = [output for output in _outputs(model(*leaves)) if output.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])
    graded = [leaf for leaf in (*leaves, *model.parameters()) if isinstance(leaf, torch.Tensor)]
    # An embedding may have a sparse one.
    return [leaf.grad.to_dense() for leaf in graded if leaf.grad is not None]


def _slices(reference: _Reference, *, drawn: bool, backward: bool) -> dict[str, Any]:
    """Return how the reference can be computed in slices of rows, as in ``Problem``. They are tested in float64."""
    stream = random.Random(4)  # noqa: S311 - so that the same is found again
    way = None
    try:
        model = _model_in_double(reference)
        draws = list(_row_draws(reference, stream, drawn=drawn))
        torch.set_default_dtype(torch.float64)
        with _Uncast():  # type: ignore[no-untyped-call]
            right = partial(_is_right, model, draws, stream, backward=backward)
            way = next(filter(right, _ways(draws[0])), None)
    except Exception:  # noqa: BLE001 - foreign code
        way = None
    finally:
        torch.set_default_dtype(torch.float32)
    if way is None:
        return dict(_UNSLICED)
    return {"row_independent": not any(way), "whole_inputs": sorted(way[0]), "pooled": way[1]}


def _ways(inputs: Sequence[Any]) -> list[_Way]:
    """Return the ways to compute it in slices: independent rows first, then with outputs over all rows, and with more
    and more inputs that each slice needs as a whole."""
    tensors = [place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    if len(tensors) > _ROW_INPUTS:
        return [(frozenset(), "")]
    wholes = [frozenset(some) for count in range(len(tensors)) for some in combinations(tensors, count)]
    return [(whole, pooled) for whole in wholes for pooled in ("", "mean", "sum")]


def _is_right(
    model: torch.nn.Module, draws: Sequence[Sequence[Any]], stream: random.Random, way: _Way, *, backward: bool
) -> bool:
    """Whether slices of rows give the same outputs as all of them, and with ``backward`` the same gradients. False
    where that cannot be tested."""
    until = time.process_time() + (_ROWS_S if not any(way) else _ROWS_S / 2)
    try:
        return all(_same_in_parts(way, model, inputs, stream, until, backward=backward) for inputs in draws)
    except Exception:  # noqa: BLE001 - foreign code, which may well not bear other numbers of rows
        return False


def _row_draws(reference: _Reference, stream: random.Random, *, drawn: bool) -> Iterator[list[Any]]:
    """Yield inputs in float64 as ``get_inputs`` makes them, and where any are as fair, further ones.

    The further ones have signs, and rows of which some are a million times as large as others.
    """
    for seed in range(_ROW_DRAWS):
        torch.manual_seed(stream.getrandbits(63))
        values = reference.inputs()
        yield [_in_double(value) for value in values]
        if drawn:
            yield [_spread(_in_double(value), seed * _ROW_BITS) if _is_float(value) else value for value in values]


def _spread(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Normal numbers of the scale of ``value``, with every row up to ``bits`` bits larger or smaller."""
    scale = value.abs().square().mean().sqrt()
    exponents = torch.rand(value.shape[:1], dtype=scale.dtype) * 2 - 1
    return torch.randn_like(value) * scale * (exponents * bits).exp2().view(-1, *[1] * (value.dim() - 1))


def _same_in_parts(
    way: _Way, model: torch.nn.Module, inputs: Sequence[Any], stream: random.Random, until: float, *, backward: bool
) -> bool:
    whole, pooled = way
    cut = [place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor) and place not in whole]
    extents = {inputs[place].shape[:1] for place in cut}
    rows = len(inputs[cut[0]]) if len(extents) == 1 else 0
    if rows < 2:
        return False
    outputs = _call(model, _copied(inputs), seed=5)
    if not pooled and any(output.shape[:1] != (rows,) for output in outputs):
        return False
    if pooled:
        row = [value[:1] if place in cut else value for place, value in enumerate(inputs)]
        largest = max(value.numel() for place, value in enumerate(row) if place in cut)
        alone = _call(model, _copied(row), seed=5)
        if any(
            not _is_float(output) or output.numel() > largest or output.shape != other.shape
            for output, other in zip(outputs, alone, strict=True)
        ):
            return False
    upstream = [torch.randn(output.shape) for output in outputs] if backward else []
    all_outputs, gradients = _outputs_and_gradients(model, inputs, upstream)
    expected = [*all_outputs, *(gradient for _, gradient in gradients)]
    # Outputs and gradients that have the rows of a slice. All others are sums over slices.
    cuts_of = [not pooled] * len(outputs) + [place in cut for place, _ in gradients]
    sums: list[torch.Tensor | None] = [None] * len(expected)
    # Single rows at both ends and between them, and parts of two lengths.
    middle = stream.randrange(1, rows)
    cuts = sorted({0, 1, middle, min(middle + 1, rows - 1), rows - 1, rows})
    for start, end in pairwise(cuts):
        if time.process_time() > until:
            return False
        share = (end - start) / rows if pooled == "mean" else 1.0
        part = [value[start:end] if place in cut else value for place, value in enumerate(inputs)]
        found, its_own = _outputs_and_gradients(
            model, part, [gradient * share if pooled else gradient[start:end] for gradient in upstream]
        )
        found = [output * share for output in found] if pooled else found
        for place, (one, other) in enumerate(zip([*found, *(each for _, each in its_own)], expected, strict=True)):
            if not cuts_of[place]:
                known = sums[place]
                sums[place] = one if known is None or one is None else known + one
            elif not _same_rows(one, other, start, end):
                return False
    pairs = [(one, other) for one, other, is_cut in zip(sums, expected, cuts_of, strict=True) if not is_cut]
    flat = [[None if each is None else each.reshape(1, *each.shape) for each in pair] for pair in pairs]
    return all(_same_rows(one, other, 0, 1) for one, other in flat)


def _outputs_and_gradients(
    model: torch.nn.Module, inputs: Sequence[Any], upstream: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[tuple[int, torch.Tensor | None]]]:
    """Return the outputs, and the gradients of inputs by their place, if there is an ``upstream``. Those of parameters
    are behind them; they have a place of their own."""
    if not upstream:
        return _call(model, _copied(inputs), seed=5), []
    torch.manual_seed(5)
    leaves = [_leaf(value) for value in _copied(inputs)]
    outputs = _outputs(model(*leaves))
    pairs = [
        (output, given.to(output.dtype))
        for output, given in zip(outputs, upstream, strict=True)
        if output.requires_grad
    ]
    wanted = [(place, leaf) for place, leaf in enumerate(leaves) if _is_float(leaf)]
    wanted += [(_PARAMETER, weight) for weight in model.parameters() if weight.requires_grad and wanted]
    if not pairs or not wanted:
        return outputs, []
    gradients = torch.autograd.grad(
        [output for output, _ in pairs],
        [leaf for _, leaf in wanted],
        [given for _, given in pairs],
        allow_unused=True,
    )
    return outputs, [(place, gradient) for (place, _), gradient in zip(wanted, gradients, strict=True)]


def _same_rows(part: torch.Tensor | None, whole: torch.Tensor | None, start: int, end: int) -> bool:
    """Whether ``part`` equals those rows of ``whole``. NaN and infinities are equal to themselves."""
    if part is None or whole is None:
        return part is whole
    expected = whole[start:end]
    if torch.equal(part, expected):
        return True
    if part.shape != expected.shape or not _is_float(part):
        return False
    part, expected = (_numbers(tensor.detach()).reshape(end - start, -1) for tensor in (part, expected))
    largest = expected.nan_to_num(0.0, 0.0, 0.0).abs().amax(1, keepdim=True)
    near = (part - expected).abs() <= _ROW_TOLERANCE * largest + _ROW_FLOOR
    return bool((near | (part == expected) | (part.isnan() & expected.isnan())).all())


def _call(model: Callable[..., Any], inputs: Sequence[Any], *, seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    random.seed(seed)
    with torch.no_grad():
        return _outputs(model(*inputs))


def _differ(one: Sequence[Any], other: Sequence[Any], tolerance: float = _TOLERANCE) -> bool:
    """Whether a tensor of ``one`` differs from ``other``'s by more than ``tolerance`` of its root mean square."""
    return any(
        a.shape != b.shape or not _close(_numbers(a), _numbers(b), tolerance)
        for a, b in zip(one, other, strict=True)
        if isinstance(a, torch.Tensor)
    )


def _close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    finite = a[a.isfinite()]
    scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return torch.allclose(a, b, tolerance, tolerance * scale, equal_nan=True)


def _leaf(value: Any) -> Any:
    return value.detach().requires_grad_() if _is_float(value) else value


def _copied(values: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _is_float(value: Any) -> bool:
    """Whether gradients flow back to it: eight-bit floats are a storage format, and count as integers."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.is_complex() or (value.is_floating_point() and value.element_size() > 1)


def _in_double(value: Any) -> Any:
    if not _is_float(value):
        return value
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _model_in_double(reference: _Reference) -> torch.nn.Module:
    converted: torch.nn.Module = reference.model(0)._apply(_in_double)  # type: ignore[no-untyped-call]
    return converted


class _Uncast(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Turns numbers to float64 where a reference asks for less, as the judge does for its exact results."""

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        dtype = kwargs.get("dtype")
        return func(*args, **(kwargs | {"dtype": _EXACT[dtype]} if dtype in _EXACT else kwargs))


def _numbers(value: torch.Tensor) -> torch.Tensor:
    """Convert to float64, complex numbers to pairs."""
    return torch.view_as_real(value.resolve_conj()).double() if value.is_complex() else value.double()


def _is_unknown(value: torch.Tensor) -> bool:
    plain = value.layout is torch.strided and not value.is_nested and not value.is_quantized
    return not plain or value.dtype is torch.complex32


def _layout(value: torch.Tensor) -> str:
    """Name the layout in memory.

    ``contiguous``; ``permuted``, its dimensions in another order; or with ``gaps``, or with several elements in one
    place.
    """
    if value.is_contiguous():
        return "contiguous"
    expected = 1
    for stride, extent in sorted(zip(value.stride(), value.shape, strict=True)):
        if extent > 1 and stride != expected:
            return "gaps"
        expected *= extent
    return "permuted"


def _outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _described(value: Any) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"dtype": dtype, "shape": list(value.shape), "layout": _layout(value)}
    return {"value": repr(value)[:_MESSAGE_CHARACTERS]}


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def _said(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _MESSAGE_CHARACTERS else f"{text[: _MESSAGE_CHARACTERS - 3]}..."
