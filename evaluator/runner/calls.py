"""Constructing ``ModelNew`` and answering the judge's calls, inside the runner.

The judge sends one message, to construct the model; from then on every step is released by the doorbell.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.fx.experimental.symbolic_shapes  # torch imports it in a first backward pass: paid once, before any fork

from evaluator.dtypes import is_differentiable, scrub_value
from evaluator.protocol import messages
from evaluator.protocol.control_page import MAX_LOCATIONS, MEMORY_PROBE, CallMode, Doorbell, Failure, Frame, FrameKind
from evaluator.protocol.shared_memory import Block, open_block, shares_elements
from evaluator.protocol.stream_gate import await_gate
from evaluator.runner.locations import ABSENT, SHARED, Locator
from evaluator.runner.tracebacks import classify, describe
from evaluator.runner.variants import as_baseline
from evaluator.runner.weights import State, WeightMatch, load_weights, match_weights, take_weights, write_weights

__all__ = ["CallLoop", "CandidateError"]


_CAPTURE_RELAXED: Final = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED`` of CUDA's driver."""


_GRADIENTS: Final = ("input_gradients", "weight_gradients")
_GRADIENT_OF: Final[Any] = torch.Tensor.grad
_ATTRIBUTES: Final[Any] = torch.nn.Module.__dict__["__dict__"]
"""The attributes by torch's and Python's own access, taken before there is a candidate, whose own access could do
anything.
"""


class CandidateError(Exception):
    """An error of the candidate's, found by the code around it."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class CallLoop:
    """One constructed model and its shared blocks."""

    def __init__(self, control: socket.socket, model_class: type, init_inputs: Sequence[Any]) -> None:
        self._control = control
        self._class = model_class
        self._init_inputs = init_inputs
        self._blocks: dict[str, Block] = {}
        self._reserve_bytes = 0
        self._clock: _Clock | None = None
        self._inputs: list[Any] = []
        self._weights = WeightMatch()
        self._weight_names: Sequence[str] = ()
        self._weight_count = 0
        self._results = _Results([], None, 0)
        self._computed: list[tuple[torch.Tensor, Any]] = []
        self._unscrubbed: list[tuple[torch.Tensor, Any]] = []
        self._deferred_results: list[_Results] = []
        self._between: list[Any] | None = None
        self._present = self._kept = self._possible_state = 0
        self._probe: torch.Tensor | None = None
        self._locator = Locator(torch.device("cpu"), readable=False)

    def serve(self) -> None:
        """Serve until the judge closes the control socket, or the candidate fails."""
        message, descriptors = messages.receive(self._control)
        self._doorbell = doorbell = Doorbell.join(descriptors, message["spin_s"])
        try:
            self._construct(message)
            self._say_ready()
            sequence = 1
            while True:
                mode = doorbell.await_release(sequence)
                if mode is CallMode.MESSAGE:
                    self._obey(*messages.receive(self._control))
                    doorbell.describe_weights(self._weights.report(len(self._weight_names)))
                    self._say_ready()
                elif mode is CallMode.DELIVER:
                    self._check_results()
                    self._deliver()
                    doorbell.finish(sequence, 0, 0, 0, kept=self._kept)
                elif mode in (CallMode.PREPARE, CallMode.PREPARE_WARM):
                    self._retire(scrubs=mode is CallMode.PREPARE)
                    # The allocator's answer takes Python so long that no clock may run meanwhile.
                    peak_bytes = self._peak_bytes()
                    self._clock = _Clock(self._device)
                    doorbell.finish(sequence, 0, peak_bytes, 0)
                else:
                    if "gate" in self._blocks:
                        await_gate(self._blocks["gate"], sequence)
                    clock = self._call(mode)
                    doorbell.finish(sequence, clock.device_ns, 0, self._present, clock.forward_ns)
                sequence += 1
        except (messages.ConnectionClosed, ConnectionError):
            return
        except CandidateError as error:
            self._fail(error.failure, str(error))
        except BaseException as error:  # noqa: BLE001 - whatever the candidate raises is its verdict
            self._fail(classify(error), describe(error, Path.cwd()))

    def _construct(self, message: dict[str, Any]) -> None:
        self._device = torch.device(message["device"])
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        first = _first_kernels(
            self._device,
            getattr(torch, message["precision"]),
            there_are_products=message["products"],
            there_are_weights=message["weights"],
        )
        with _construct_errors(), first:
            torch.manual_seed(message["seed"])
            model = self._class(*self._init_inputs)
            if not isinstance(model, torch.nn.Module):
                raise CandidateError(
                    Failure.CONSTRUCT, f"{self._class.__name__} must be a torch.nn.Module, not a {type(model).__name__}"
                )
            dtype = getattr(torch, message["precision"])
            self._model = model.to(self._device) if dtype is torch.float32 else model.to(self._device, dtype)
            self._synchronize()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # the other side may need this memory

    def _open(self, message: dict[str, Any], descriptors: list[int]) -> None:
        remaining = iter(descriptors)
        for name, handle in message["blocks"].items():
            self._blocks[name] = open_block(handle, None if "ipc" in handle else next(remaining), self._device)
        tensors = iter(self._blocks["inputs"].tensors)
        self._inputs = [next(tensors) if value is None else value["value"] for value in message["inputs"]]
        self._locator = Locator(self._device, readable=message["readable"])
        self._possible_state = message["possible_state"]
        self._weight_names, self._weight_count = message["weight_names"], message["weight_count"]
        find = load_weights if message["load_weights"] else match_weights
        with _construct_errors():
            self._weights = find(self._model, self._state())
            self._model = as_baseline(self._model, message["baseline"])
            self._synchronize()
        if message["readable"]:
            self._show_where_memory_is()

    def _state(self) -> State:
        return State(self._weight_names, self._blocks["weights"].tensors, self._weight_count)

    def _obey(self, message: dict[str, Any], descriptors: list[int]) -> None:
        self._retire()
        if message["op"] == "open":
            self._open(message, descriptors)
        elif message["op"] == "close_shared":
            self._close_shared()
        elif message["op"] == "deliver_in_call":
            self._locator = Locator(self._device, readable=False)
        elif message["op"] == "load_weights":
            self._weights = load_weights(self._model, self._state())
        elif message["op"] == "take_weights":
            take_weights(self._model, self._weights, self._state(), message["indexes"])
            self._synchronize()
        elif message["op"] == "step_weights":
            write_weights(self._weights, self._state(), message["indexes"])
            self._synchronize()
        elif message["op"] == "interleave":
            self._between = [value.clone() if isinstance(value, torch.Tensor) else value for value in self._inputs]
            self._synchronize()
        elif message["op"] == "end_interleave":
            self._end_interleaving()
        elif message["op"] == "release_memory" and self._device.type == "cuda":
            self._deferred_results.clear()
            self._reserve_bytes = max(self._reserve_bytes, torch.cuda.max_memory_reserved())
            torch.cuda.empty_cache()
        elif message["op"] == "reserve_memory" and self._device.type == "cuda":
            # One block that the allocator can split: the next timed call need not wait for the driver. The results of
            # the last call are still held, and used again.
            missing = self._reserve_bytes - torch.cuda.memory_reserved()
            torch.empty(max(0, missing), dtype=torch.uint8, device=self._device)

    def _close_shared(self) -> None:
        """Return to the state after constructing, but keep the model's weights.

        The shared memory is not used any more, and the memory that the allocator keeps is given back.
        """
        self._defer_release()
        self._inputs = []
        self._deferred_results.clear()
        self._clock = self._probe = self._between = None
        blocks, self._blocks = self._blocks, {}
        for block in blocks.values():
            block.close()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            self._reserve_bytes = 0
            torch.cuda.reset_peak_memory_stats()

    def _call(self, mode: CallMode) -> _Clock:
        """Call the model, and report the locations of its results.

        All work that can wait is left for the delivery. Here it would be in the judge's clock, and its time in Python
        differs from process to process.
        """
        clock, self._clock = self._clock or _Clock(self._device), None
        self._retire(forgets=mode is CallMode.FORWARD)
        self._results = self._timed_forward(clock) if mode is CallMode.FORWARD else self._timed_backward(clock)
        self._locate_results(clock)
        return clock

    def _locate_results(self, clock: _Clock) -> None:
        """Report the locations of the results to the judge.

        Results that the judge cannot read there are delivered at once, in the call's own time: computed and delivered
        could not be told apart.
        """
        pairs = self._pair_results()
        # A wrong number of outputs, or a wrong kind, has no location: the delivery reports it.
        outputs = len(self._blocks["outputs"].tensors)
        are_all = len(self._results.outputs) == outputs
        locations: list[bytes] = []
        unreadable: list[tuple[torch.Tensor, Any]] = []
        for number, (target, value) in enumerate(pairs):
            if value is None:
                locations.append(ABSENT)
                continue
            location = self._locator.locate(value, target) if number < MAX_LOCATIONS and are_all else None
            fits = are_all and (_is_as_expected(value, target) if number < outputs else value.shape == target.shape)
            (unreadable if location is None and fits else self._computed).append((target, value))
            locations.append(location or (SHARED if fits else ABSENT))
        self._unscrubbed = [*self._computed, *unreadable]
        if unreadable:
            self._copy(unreadable)
            clock.stop_again()
        self._doorbell.tell_locations(locations[:MAX_LOCATIONS])

    def _show_where_memory_is(self) -> None:
        """Report the location of a tensor of this process, for the judge to test whether it can read there."""
        self._probe = torch.full((1,), MEMORY_PROBE, dtype=torch.int64, device=self._device)
        self._synchronize()
        self._doorbell.tell_locations([self._locator.locate(self._probe, self._probe) or ABSENT])

    def _timed_forward(self, clock: _Clock) -> _Results:
        with torch.no_grad():
            clock.start()
            self._deferred_results.clear()
            outputs = self._as_list(self._model(*self._inputs))
            outputs = [self._made_its_own(output) for output in outputs]
            clock.stop()
            return _Results(outputs, None, 0)

    def _timed_backward(self, clock: _Clock) -> _Results:
        leaves = _leaves(self._inputs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        wanted = [
            *tensors,
            *(weight for weight in self._weights.parameters if weight is not None and weight.requires_grad),
        ]
        upstream = self._blocks["upstream"].tensors
        # The time of a candidate's own zero_grad would not be counted.
        _forget_gradients(self._model, self._weights.parameters)
        clock.start()
        self._deferred_results.clear()
        outputs = self._as_list(self._model(*leaves))
        clock.forward_ends()
        if self._between is not None:
            self._model(*_leaves(self._between))
        differentiable = [
            (output, gradient)
            for output, gradient in zip(outputs, upstream, strict=False)
            if isinstance(output, torch.Tensor) and output.requires_grad and output.shape == gradient.shape
        ]
        if differentiable and wanted:
            # As in a training step: autograd.grad refuses some honest models (reentrant checkpoints).
            torch.autograd.backward(
                [output for output, _ in differentiable],
                [gradient.to(output.dtype) for output, gradient in differentiable],
            )
        gradients: Sequence[torch.Tensor | None] = [leaf.grad for leaf in wanted]
        outputs = [self._made_its_own(output) for output in outputs]
        gradients = [self._made_its_own(_dense(gradient)) for gradient in gradients]
        clock.stop()
        return _Results(outputs, gradients if differentiable else None, len(tensors))

    def _pair_results(self) -> list[tuple[torch.Tensor, Any]]:
        """Pair each place in the shared memory with the last call's result for it, or ``None``.

        The results are outputs, gradients of inputs, and gradients of the reference's weights. Also records which
        gradients exist: bit 0, there is a graph; bit 1 + i, gradient i (of inputs, then of weights) exists.
        """
        results, blocks = self._results, self._blocks
        self._computed, self._present = [], 0
        targets = blocks["outputs"].tensors
        outputs = [*results.outputs, *[None] * len(targets)][: len(targets)]
        pairs: list[tuple[torch.Tensor, Any]] = list(zip(targets, outputs, strict=True))
        if results.gradients is None:
            return [*pairs, *((target, None) for name in _GRADIENTS for target in blocks[name].tensors)]
        self._present = 1
        found = iter(results.gradients)
        for index, target in enumerate(blocks["input_gradients"].tensors):
            pairs.append((target, self._note_present(next(found), index)))
        for index, target in enumerate(blocks["weight_gradients"].tensors):
            weight = self._weights.parameters[index]
            gradient = None if weight is None or not weight.requires_grad else next(found)
            if gradient is not None and self._weights.transposed[index]:
                gradient = gradient.t()
            pairs.append((target, self._note_present(gradient, results.inputs + index)))
        return pairs

    def _note_present(self, gradient: torch.Tensor | None, index: int) -> torch.Tensor | None:
        self._present |= 0 if gradient is None else 2 << index
        return gradient

    def _check_results(self) -> None:
        """Compare the outputs of the last call with the reference's number, types, shapes, dtypes and devices."""
        self._check(self._results.outputs)

    def _retire(self, *, scrubs: bool = True, forgets: bool = True) -> None:
        """Release the results of the last call, where no delivery was requested.

        On CUDA they are spoiled here, when no clock runs; on a CPU the judge has done so, while all processes were
        stopped. A call that ``forgets`` drops the gradients of the last one; a backward does so by itself.
        """
        if forgets and self._results.gradients is not None:
            _forget_gradients(self._model, self._weights.parameters)
        if scrubs and self._unscrubbed and self._device.type == "cuda":
            self._scrub()
        self._defer_release()

    def _defer_release(self) -> None:
        """Hold the results of the last call until the clock of the next one runs.

        In a user's own loop, their release takes time as well.
        """
        self._deferred_results.append(self._results)
        self._results, self._computed, self._unscrubbed = _Results([], None, 0), [], []

    def _end_interleaving(self) -> None:
        """Forget the other inputs, and the memory of their calls, which belongs to no measured call."""
        self._between = None
        if self._device.type == "cuda":
            self._deferred_results.clear()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _peak_bytes(self) -> int:
        """Return the allocator's peak since the last request; 0 for calls with others between."""
        if self._device.type != "cuda":
            return 0
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak if self._between is None else 0

    def _made_its_own(self, value: Any) -> Any:
        """Copy a value that does not belong to the call, and return any other value as it is.

        Copied are values in the memory of the inputs or of the upstream gradients, which are taken away when the call
        is over. So are values that are not written out, like an expanded view: to write them out belongs to the call.
        """
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        at = value.untyped_storage().data_ptr()
        for name in ("inputs", "upstream"):
            memory = self._blocks[name].memory
            if memory.data_ptr() <= at < memory.data_ptr() + memory.numel():
                return value.detach().clone()
        if shares_elements(value.shape, value.stride()):
            return value.detach().clone(memory_format=torch.contiguous_format)
        return value

    def _as_list(self, result: Any) -> list[Any]:
        return list(result) if isinstance(result, tuple | list) else [result]

    def _check(self, outputs: list[Any]) -> None:
        """Compare number, types, shapes, dtypes and devices of the outputs with the reference's.

        Raises ``CandidateError`` where they differ.
        """
        expected = self._blocks["outputs"].tensors
        if len(outputs) != len(expected):
            raise CandidateError(Failure.WRONG_SHAPE, f"{len(outputs)} outputs, {len(expected)} expected")
        for index, (output, target) in enumerate(zip(outputs, expected, strict=True)):
            which = f"output {index}" if len(expected) > 1 else "the output"
            if not isinstance(output, torch.Tensor):
                raise CandidateError(
                    Failure.WRONG_SHAPE, f"{which} is a {type(output).__name__}, not a tensor of shape {_show(target)}"
                )
            if type(output) not in (torch.Tensor, torch.nn.Parameter):
                raise CandidateError(
                    Failure.WRONG_DTYPE, f"{which} is a {type(output).__name__}: a subclass of Tensor is not accepted"
                )
            if output.layout is not torch.strided:
                raise CandidateError(
                    Failure.WRONG_DTYPE, f"{which} is sparse ({output.layout}): a dense tensor is expected"
                )
            if output.shape != target.shape:
                raise CandidateError(
                    Failure.WRONG_SHAPE, f"{which} has shape {_show(output)}, expected {_show(target)}"
                )
            if output.dtype != target.dtype:
                raise CandidateError(Failure.WRONG_DTYPE, f"{which} is {output.dtype}, expected {target.dtype}")
            if output.device.type != target.device.type:
                raise CandidateError(Failure.WRONG_DTYPE, f"{which} is on {output.device}, expected {target.device}")

    def _deliver(self) -> None:
        """Copy the last call's results into the shared memory, and scrub them.

        A model's user may write to an output, and the next output has to be right all the same.
        """
        self._copy(self._computed)
        self._scrub()
        self._defer_release()
        _forget_gradients(self._model, self._weights.parameters)
        self._synchronize()

    def _copy(self, pairs: Sequence[tuple[torch.Tensor, Any]]) -> None:
        with torch.no_grad():
            for target, value in pairs:
                target.copy_(value)

    def _scrub(self) -> None:
        """Overwrite the results of the last call, except for outputs that may be the model's own state.

        These are parameters or buffers in the reference as well; bit i records output i. A gradient is never such
        state. A candidate that keeps one in a buffer would otherwise find it unchanged.
        """
        state, kept = _memory_of(self._model), 0
        outputs = {id(target): index for index, target in enumerate(self._blocks["outputs"].tensors)}
        # A tensor that was made in inference mode can be written to in that mode alone.
        with torch.inference_mode():
            for target, value in self._unscrubbed:
                if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
                    continue  # a delivery reports the error
                output = outputs.get(id(target))
                possible_state = output is not None and self._possible_state >> output & 1
                if output is not None and possible_state and value.untyped_storage().data_ptr() in state:
                    kept |= 1 << output
                else:
                    value.fill_(scrub_value(value.dtype))
        self._kept = kept & (1 << MAX_LOCATIONS) - 1

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _say_ready(self) -> None:
        self._control.sendall(Frame(FrameKind.READY, Failure.NONE, "").encode())

    def _fail(self, failure: Failure, text: str) -> None:
        self._control.sendall(Frame(FrameKind.FAILED, failure, text).encode())


def _is_as_expected(value: Any, target: torch.Tensor) -> bool:
    """Whether an output is of the kind that a delivery requires."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and (value.shape, value.dtype, value.device.type) == (target.shape, target.dtype, target.device.type)
    )


def _state_of(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the parameters and buffers of a model and its parts, each part once, without calling their code.

    The time of a candidate's own method between two calls would not be counted.
    """
    found: list[torch.Tensor] = []
    waiting: list[Any] = [model]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if type(part) is torch._C.ScriptModule:
            kinds: tuple[Any, ...] = torch._C.ParameterDict, torch._C.BufferDict
            found += [tensor for kind in kinds for _, tensor in kind(part).items()]
            waiting += [each for _, each in torch._C.ModuleDict(part).items()]
            continue
        own = _ATTRIBUTES.__get__(part)
        parameters, buffers, parts = (own.get(name) for name in ("_parameters", "_buffers", "_modules"))
        for tensors in (parameters, buffers):
            if issubclass(type(tensors), dict):
                found += [tensor for tensor in dict.values(tensors) if issubclass(type(tensor), torch.Tensor)]
        if issubclass(type(parts), dict):
            waiting += [each for each in dict.values(parts) if issubclass(type(each), torch.nn.Module)]
        # The state of a scripted module is TorchScript's, and a traced one stands for such a module.
        if type(own.get("_c")) is torch._C.ScriptModule:
            waiting.append(own["_c"])
        if issubclass(type(own.get("_actual_script_module")), torch.nn.Module):
            waiting.append(own["_actual_script_module"])
    return found


def _forget_gradients(model: torch.nn.Module, matched: Sequence[torch.Tensor | None] = ()) -> None:
    """Drop gradients like torch's ``zero_grad``, without calling the model's code.

    The gradients of ``matched`` tensors, which stand for the reference's weights, are dropped wherever a model has
    them.
    """
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in (*_state_of(model), *matched):
            if tensor is not None:
                _GRADIENT_OF.__set__(tensor, None)


def _memory_of(model: torch.nn.Module) -> set[int]:
    """Return the addresses of a model's parameters and buffers, of those that have memory of torch's."""
    begins = set()
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in _state_of(model):
            with contextlib.suppress(RuntimeError):  # a sparse tensor, or oneDNN's, has no storage to name
                begins.add(torch.Tensor.untyped_storage(tensor).data_ptr())
    return begins


def _leaves(inputs: Sequence[Any]) -> list[Any]:
    """Return arguments of ``forward`` of which the differentiable ones begin a graph."""
    return [value.detach().requires_grad_() if is_differentiable(value) else value for value in inputs]


@contextlib.contextmanager
def _first_kernels(
    device: torch.device, dtype: torch.dtype, *, there_are_products: bool, there_are_weights: bool
) -> Iterator[None]:
    """Load kernels of a CUDA device that are certainly needed and slow the first time, while the model is constructed.

    Constructing is mostly drawing random numbers, one by one. For matrix products, cuBLAS takes a tenth of a second to
    get ready, and the comparison that matches weights a thirtieth.
    """
    if device.type != "cuda" or not (there_are_products or there_are_weights):
        yield
        return

    def ask() -> None:
        with contextlib.suppress(Exception):  # the candidate may have changed anything of torch by now
            # A graph that the constructor records would be spoiled by another thread's allocations.
            ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_CAPTURE_RELAXED)))
            # Nor is it on the stream that everything else waits for: recording is forbidden while that one is at work.
            with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
                # With a single element there is nothing to gather, and half of a comparison would not be loaded.
                one, other = (torch.zeros(2, 2, dtype=dtype, device=device) for _ in range(2))
                if there_are_products:
                    try:
                        one.mm(other)
                    finally:
                        torch._C._cuda_clearCublasWorkspaces()  # unneeded workspaces must not count in the peak
                if there_are_weights:
                    one.equal(other)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextlib.contextmanager
def _construct_errors() -> Iterator[None]:
    """Turn every exception of constructing into a construct error, but for a want of memory."""
    try:
        yield
    except CandidateError:
        raise
    except BaseException as error:
        failure = classify(error)
        if failure is Failure.RUNTIME:
            failure = Failure.CONSTRUCT
        raise CandidateError(failure, describe(error, Path.cwd())) from error


@dataclass(frozen=True)
class _Results:
    """The results of a call. ``gradients`` (of so many ``inputs``, then of the weights) of ``None``: no graph."""

    outputs: list[Any]
    gradients: Sequence[torch.Tensor | None] | None
    inputs: int


class _Clock:
    """One call's time: CUDA events on the current stream, or the monotonic clock."""

    def __init__(self, device: torch.device) -> None:
        # Made ahead: making one takes longer than recording it.
        self._events = [_event() for _ in range(3)] if device.type == "cuda" else []
        for event in self._events:
            event.record()  # an event is made when it is first recorded
        if self._events:
            # All steps of a call besides the model are done once before, so that the processor has them in its caches.
            torch.cuda.synchronize()
            self._between(0, 1)
        self._marks: list[int] = []
        self.device_ns = 0
        self.forward_ns = 0

    def start(self) -> None:
        # No work of ours is under way, and work that waits at the gate for the judge's is not waited for here.
        self._mark()

    def stop_again(self) -> None:
        """Extend the call until now."""
        self._marks.pop()
        self.stop()

    def forward_ends(self) -> None:
        """Mark the end of the forward: the time until ``stop`` is the backward's."""
        self._mark()

    def stop(self) -> None:
        """End the call; waits until the device has done all of its work."""
        self._mark()
        if self._events:
            torch.cuda.synchronize()
        last = len(self._marks) - 1
        self.device_ns = self._between(0, last)
        if last > 1:
            self.forward_ns = self._between(0, 1)

    def _mark(self) -> None:
        if self._events:
            self._events[len(self._marks)].record()
        self._marks.append(time.perf_counter_ns())

    def _between(self, first: int, last: int) -> int:
        if self._events:
            return round(float(self._events[first].elapsed_time(self._events[last])) * 1e6)
        return self._marks[last] - self._marks[first]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call] # torch leaves it unannotated


def _dense(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Return a gradient as the reference's is compared.

    The sums that a sparse one still has to add up belong to the call; one of a subclass becomes a plain one.
    """
    if gradient is None:
        return None
    with torch._C.DisableTorchFunctionSubclass():
        if type(gradient) not in (torch.Tensor, torch.nn.Parameter):
            with contextlib.suppress(RuntimeError, TypeError):  # one without memory of its own is copied as it is
                gradient = torch.Tensor.as_subclass(gradient, torch.Tensor)
        return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _show(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))
