"""One CUDA source as two: the device unit without torch, and the host unit without kernels' bodies.

Only code that is certainly for the host alone is left out of the device unit; all else stays in both. Lines keep their
numbers. Code that is left out by mistake is missed by a compiler, or by the checks that follow. Code that is not
understood is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from evaluator.builder.recipes.split.chunks import CLASS_KEYS, Chunk, Form, chunks_of, without_template
from evaluator.builder.recipes.split.lexer import (
    Definition,
    Kind,
    Token,
    definition_of,
    directive_name,
    included,
    tokens_of,
)
from evaluator.builder.recipes.split.refused import Refused

__all__ = ["ANONYMOUS", "Units", "headers_for", "split"]

ANONYMOUS: Final = "_GLOBAL__N_1"
"""clang's name of an unnamed namespace. nvcc would name it after the file, so the device unit names it."""

_SPACES: Final = {"__global__", "__device__", "__constant__", "__shared__"}
_BOTH_SIDES: Final = {"__host__", "constexpr", "consteval"}
_TORCH_SPACES: Final = {"C10_DEVICE", "C10_HOST_DEVICE"}
_KEYWORDS: Final = {"operator", "const", "noexcept", "static", "inline", "void", "float", "int"}
_NAMESPACES: Final = {"torch", "at", "c10", "caffe2", "py", "pybind11"}
_HOST_PREFIXES: Final = ("TORCH_", "AT_", "PYBIND11_", "C10_", "PyObject", "PyModule", "Py_", "PyArg", "THP")
_HOST_LIBRARIES: Final = ("cublas", "cusparse", "cusolver", "cudnn")
_HOST_WORDS: Final = {"Tensor", "TensorOptions", "PyTypeObject", "PyMethodDef"}

_DEVICE_HEADERS: Final = {
    "Half": "c10/util/Half.h",
    "BFloat16": "c10/util/BFloat16.h",
    "complex": "c10/util/complex.h",
    "Float8_e4m3fn": "c10/util/Float8_e4m3fn.h",
    "Float8_e5m2": "c10/util/Float8_e5m2.h",
    "acc_type": "ATen/AccumulateType.h",
    "opmath_type": "ATen/OpMathType.h",
    "TensorAccessor": "ATen/core/TensorAccessor.h",
    "PackedTensorAccessor": "ATen/core/TensorAccessor.h",
    "PackedTensorAccessor32": "ATen/core/TensorAccessor.h",
    "PackedTensorAccessor64": "ATen/core/TensorAccessor.h",
    "GenericPackedTensorAccessor": "ATen/core/TensorAccessor.h",
    "DefaultPtrTraits": "ATen/core/TensorAccessor.h",
    "RestrictPtrTraits": "ATen/core/TensorAccessor.h",
    "C10_DEVICE": "c10/macros/Macros.h",
    "C10_HOST_DEVICE": "c10/macros/Macros.h",
    "C10_LAUNCH_BOUNDS_1": "c10/macros/Macros.h",
    "C10_LAUNCH_BOUNDS_2": "c10/macros/Macros.h",
    "C10_WARP_SIZE": "c10/macros/Macros.h",
    "CUDA_KERNEL_ASSERT": "c10/macros/Macros.h",
    "CUDA_KERNEL_LOOP": "ATen/cuda/detail/KernelUtils.h",
}
"""torch's names that device code uses, and the small header that has each."""

_STANDARD_HEADERS: Final = {
    "accumulate": "numeric",
    "cerr": "iostream",
    "complex": "complex",
    "cout": "iostream",
    "exception": "stdexcept",
    "iota": "numeric",
    "list": "list",
    "map": "map",
    "mutex": "mutex",
    "optional": "optional",
    "ostringstream": "sstream",
    "runtime_error": "stdexcept",
    "set": "set",
    "shared_ptr": "memory",
    "stringstream": "sstream",
    "unique_ptr": "memory",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "variant": "variant",
}
"""Names of ``std`` that torch's headers bring along, and that are seldom left for the device."""

_TORCH_INCLUDES: Final = ("torch/", "ATen/", "c10/", "caffe2/", "pybind11/")
_HOST_INCLUDES: Final = {"Python.h", "torch.h", "pybind11.h"}
_REFUSED_INCLUDES: Final = {
    "cutlass/": "CUTLASS",
    "cute/": "CuTe",
    "nvshmem": "NVSHMEM",
}
_REFUSED_WORDS: Final = {
    "__managed__": "a managed variable",
    "cudaTextureObject_t": "a texture",
    "cudaSurfaceObject_t": "a surface",
    "texture": "a texture",
    "surface": "a surface",
    "tex1Dfetch": "a texture",
    "tex2D": "a texture",
    "__NVCC__": "a question which compiler it is",
    "__clang__": "a question which compiler it is",
    "__GNUC__": "a question which compiler it is",
    "__CUDACC_VER_MAJOR__": "a question which compiler it is",
    "__CUDACC_EXTENDED_LAMBDA__": "a question which compiler it is",
    "__CUDACC_RELAXED_CONSTEXPR__": "a question which compiler it is",
    "__COUNTER__": "__COUNTER__",
    "__nv_is_extended_device_lambda_closure_type": "an extended lambda",
}
_REFUSED_DIRECTIVES: Final = {"line", "import", "include_next"}


@dataclass(frozen=True)
class Units:
    """The two units of a source.

    ``has_device_code``: there is code for the device to compile. ``has_templates``: kernels come into being only where
    the host uses them. ``includes``: everything that the source includes, in order.
    """

    device: str
    host: str
    has_device_code: bool
    has_templates: bool
    includes: tuple[str, ...]


@dataclass
class _Facts:
    """The expansions of the source's macros, and the code that has been left out of the device unit so far."""

    macros: dict[str, list[Definition]]
    lost: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)

    def expanded(self, tokens: Iterable[Token]) -> list[Token]:
        """Return ``tokens``, followed by the bodies of all macros that they may expand to."""
        found = list(tokens)
        seen: set[str] = set()
        for token in found:
            if token.kind is Kind.WORD and token.text in self.macros and token.text not in seen:
                seen.add(token.text)
                for definition in self.macros[token.text]:
                    found.extend(definition.body)
        return found


def split(source: str) -> Units:
    """Split ``source``. Raises ``Refused`` for code that is not understood, or not to be built in two parts."""
    tokens = tokens_of(source)
    directives = [token for token in tokens if token.kind is Kind.DIRECTIVE]
    facts = _Facts(_macros(directives))
    _refuse_words(facts, tokens)
    includes = tuple(name for name in map(included, directives) if name is not None)
    for name in includes:
        for prefix, what in _REFUSED_INCLUDES.items():
            if name.startswith(prefix):
                raise Refused(f"the source includes {what}")
    definitions = {name for name in facts.macros if _defines_something(facts, name)}
    unit = _Writer(source, facts)
    for chunk in chunks_of(tokens, definitions):
        unit.take(chunk)
    device, host = unit.finish()
    return Units(device, host, unit.has_device_code, unit.has_templates, includes)


class _Writer:
    """Takes the chunks in order, and blanks in each unit the code of the other one."""

    def __init__(self, source: str, facts: _Facts) -> None:
        self._source = source
        self._facts = facts
        self._device: list[tuple[int, int, str]] = []
        self._host: list[tuple[int, int, str]] = []
        self.has_device_code = False
        self.has_templates = False

    def take(self, chunk: Chunk) -> None:
        if chunk.form is Form.DIRECTIVE:
            self._directive(chunk.directives[0])
            return
        for directive in chunk.directives:
            if included(directive) is not None:
                raise Refused("an #include inside a declaration")
        if chunk.form is Form.OPEN:
            self._open(chunk)
        elif chunk.form is not Form.CLOSE:
            self._declaration(chunk)

    def finish(self) -> tuple[str, str]:
        return _replaced(self._source, self._device), _replaced(self._source, self._host)

    def _directive(self, token: Token) -> None:
        name = included(token)
        if name is not None and not _is_for_device(name):
            self._device.append((token.start, token.end, ""))

    def _open(self, chunk: Chunk) -> None:
        words = [token.text for token in chunk.tokens]
        if words == ["namespace", "{"]:
            start, end = chunk.tokens[0].start, chunk.tokens[0].end
            self._device.append((start, end, f"inline namespace {ANONYMOUS}"))
        elif words[0] == "inline" and words[1:] == ["namespace", "{"]:
            raise Refused("an inline namespace without a name")

    def _declaration(self, chunk: Chunk) -> None:
        facts = self._facts
        inner = [
            part
            for definition in map(definition_of, chunk.directives)
            if definition is not None
            for part in definition.body
        ]
        everything = facts.expanded([*chunk.tokens, *inner])
        spaces = _execution_spaces(everything)
        head = facts.expanded(chunk.head)
        if chunk.form is Form.FUNCTION and not _execution_spaces(head) and spaces:
            raise Refused("device code inside a function of the host")
        if spaces:
            self._for_device(chunk, everything, head)
        elif _is_for_host_only(facts, chunk, everything, head):
            facts.lost |= _names(chunk)
            self._blank(self._device, chunk, chunk.start, chunk.end)

    def _for_device(self, chunk: Chunk, everything: Sequence[Token], head: Sequence[Token]) -> None:
        self.has_device_code = True
        in_head = _execution_spaces(head)
        words = {token.text for token in everything}
        is_kernel = "__global__" in words
        self.has_templates |= is_kernel and ("template" in words or chunk.form in (Form.MACRO, Form.TYPE))
        if chunk.form in (Form.FUNCTION, Form.TYPE, Form.MACRO) and _launches(everything):
            raise Refused("a kernel that launches kernels, or a launch in a macro or class with device code")
        self._facts.declared |= _names(chunk) if chunk.form in (Form.FUNCTION, Form.OTHER) else set()
        is_variable = chunk.form is Form.OTHER and not any(token.text == "(" for token in _before_value(chunk.head))
        if "__global__" in in_head or is_variable:
            self._publish(chunk)
        if chunk.form is Form.FUNCTION and ("__global__" in in_head or self._is_for_device_only(chunk, head)):
            brace = chunk.tokens[chunk.header]
            self._blank(self._host, chunk, brace.end, chunk.tokens[-1].start)

    def _is_for_device_only(self, chunk: Chunk, head: Sequence[Token]) -> bool:
        """Whether the host has no use for the body of a function that the device has."""
        words = {token.text for token in head}
        macros = {word for word in words if _may_be_marker(word) and word not in self._facts.macros}
        if words & (_BOTH_SIDES | {"auto", "decltype"}) or macros - {"C10_DEVICE"}:
            return False
        return not any("host" in word.lower() for word in words - _names(chunk))

    def _publish(self, chunk: Chunk) -> None:
        """Take ``static`` away: nvcc and clang would give a hidden thing different names."""
        for token in _before_value(without_template(chunk.head)):
            if token.text == "static":
                self._device.append((token.start, token.end, ""))
                self._host.append((token.start, token.end, ""))

    def _blank(self, unit: list[tuple[int, int, str]], chunk: Chunk, start: int, end: int) -> None:
        """Leave out ``start`` to ``end``, but for directives that may concern the code after it."""
        position = start
        for token in chunk.directives:
            if start <= token.start < end and directive_name(token) not in ("pragma", "error", "warning", ""):
                unit.append((position, token.start, ""))
                position = token.end
        unit.append((position, end, ""))


def _replaced(source: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """Replace each stretch of ``source``, and keep the number of lines."""
    parts: list[str] = []
    position = 0
    for start, end, text in sorted(changes):
        if start < position:
            continue
        parts += [source[position:start], text, "\n" * source.count("\n", start, end)]
        position = end
    return "".join([*parts, source[position:]])


def _macros(directives: Iterable[Token]) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for token in directives:
        if directive_name(token) in _REFUSED_DIRECTIVES:
            raise Refused(f"a #{directive_name(token)}")
        definition = definition_of(token)
        if definition is not None:
            if definition.name in _SPACES | _BOTH_SIDES | {"static", "template", "namespace", "if"}:
                raise Refused(f"a macro named {definition.name}")
            found.setdefault(definition.name, []).append(definition)
    return found


def _refuse_words(facts: _Facts, tokens: Sequence[Token]) -> None:
    conditions = " ".join(token.text for token in tokens if token.kind is Kind.DIRECTIVE)
    for token in facts.expanded(tokens):
        if token.kind is Kind.WORD and token.text in _REFUSED_WORDS:
            raise Refused(f"the source has {_REFUSED_WORDS[token.text]}: {token.text}")
    for word, what in _REFUSED_WORDS.items():
        if word.startswith("__") and word in conditions:
            raise Refused(f"the source has {what}: {word}")


def _defines_something(facts: _Facts, name: str, within: frozenset[str] = frozenset()) -> bool:
    """Whether the macro ``name`` stands for whole definitions: it ends as one, or with a macro that does."""
    for definition in facts.macros[name]:
        body = definition.body
        if not definition.takes_arguments or not body:
            continue
        if body[-1].text in ("}", ";"):
            return True
        first = body[0].text
        names_another = body[-1].text == ")" and first in facts.macros and first not in within | {name}
        if names_another and _defines_something(facts, first, within | {name}):
            return True
    return False


def _execution_spaces(tokens: Iterable[Token]) -> set[str]:
    found: set[str] = set()
    for token in tokens:
        if token.kind is Kind.WORD:
            if token.text in _SPACES:
                found.add(token.text)
            if token.text in _TORCH_SPACES:
                found.add("__device__")
    return found


def _launches(tokens: Sequence[Token]) -> bool:
    return any(
        [token.text for token in tokens[place : place + 3]] == ["<", "<", "<"]
        and tokens[place].end == tokens[place + 1].start
        and tokens[place + 1].end == tokens[place + 2].start
        for place in range(len(tokens) - 2)
    )


def _is_for_host_only(facts: _Facts, chunk: Chunk, everything: Sequence[Token], head: Sequence[Token]) -> bool:
    if _needs_torch(everything) or _renames_torch(chunk):
        return True
    words = {token.text for token in everything if token.kind is Kind.WORD}
    if chunk.form is Form.FUNCTION:
        named = _names(chunk)
        if {token.text for token in head} & _BOTH_SIDES or named & facts.declared:
            return bool(words & (facts.lost - named))
        return not any(
            (_may_be_marker(token.text) and token.text not in facts.macros) or "device" in token.text.lower()
            for token in _before_name(chunk)
        )
    return bool(words & facts.lost)


def _needs_torch(tokens: Sequence[Token]) -> bool:
    """Whether it names something of torch's or Python's that no device code can use."""
    for place, token in enumerate(tokens):
        if token.kind is not Kind.WORD:
            continue
        following = [after.text for after in tokens[place + 1 : place + 4]]
        if token.text in _NAMESPACES and following[:2] == [":", ":"]:
            if following[2:] and following[2] not in _DEVICE_HEADERS and following[2] not in _NAMESPACES:
                return True
        elif token.text not in _DEVICE_HEADERS and (
            token.text in _HOST_WORDS or token.text.startswith((*_HOST_PREFIXES, *_HOST_LIBRARIES))
        ):
            return True
    return False


def _renames_torch(chunk: Chunk) -> bool:
    """Whether it renames torch or pybind11, as in ``namespace py = pybind11;``."""
    words = [token.text for token in chunk.tokens]
    return words[0] == "namespace" and bool(set(words) & _NAMESPACES)


def _before_name(chunk: Chunk) -> list[Token]:
    """The specifiers and the type of a function: the tokens before its parameters, and its template's."""
    head = list(without_template(chunk.head))
    place = next((place for place, token in enumerate(head) if token.text == "("), len(head))
    return head[: max(0, place - 1)]


def _may_be_marker(word: str) -> bool:
    """Whether ``word`` looks like a macro, to which a header could have given any meaning."""
    return len(word) > 1 and word.isupper()


def _names(chunk: Chunk) -> set[str]:
    """The names that the chunk declares: functions, types, aliases, variables; an operator has no name."""
    return _all_names(chunk) - _KEYWORDS


def _all_names(chunk: Chunk) -> set[str]:
    head = list(without_template(chunk.head))
    words = [token.text for token in head]
    if chunk.form is Form.FUNCTION:
        return _name_before(head, "(")
    if chunk.form is Form.TYPE:
        start = next((place for place, word in enumerate(words) if word in CLASS_KEYS), 0)
        found = _first_name(head[start + 1 :])
        after = _after_body(chunk)
        return found | {token.text for token in after if token.kind is Kind.WORD}
    if words[:1] == ["using"]:
        return {words[1]} if len(words) > 2 and words[2] == "=" else set()
    if words[:1] == ["typedef"]:
        return {token.text for token in head[-2:] if token.kind is Kind.WORD}
    if words[:1] == ["namespace"]:
        return {words[1]}
    if "=" in words:
        return _name_before(head, "=")
    if "(" in words:
        return _name_before(head, "(")
    return {token.text for token in head[-2:] if token.kind is Kind.WORD}


def _before_value(tokens: Sequence[Token]) -> list[Token]:
    """A declaration up to its initializer."""
    place = next((number for number, token in enumerate(tokens) if token.text in ("=", "{")), len(tokens))
    return list(tokens[:place])


def _name_before(head: Sequence[Token], mark: str) -> set[str]:
    """The last name before the first ``mark`` outside of angle brackets."""
    place = next((number for number, token in enumerate(head) if token.text == mark), len(head))
    before = [token for token in head[:place] if token.kind is Kind.WORD]
    return {before[-1].text} if before else set()


def _first_name(tokens: Sequence[Token]) -> set[str]:
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        follows = tokens[number + 1].text if number + 1 < len(tokens) else ""
        if token.kind is Kind.WORD and not depth and follows != "(" and token.text not in CLASS_KEYS:
            return {token.text}
    return set()


def _after_body(chunk: Chunk) -> Sequence[Token]:
    depth = 0
    for place in range(chunk.header, len(chunk.tokens)):
        depth += (chunk.tokens[place].text == "{") - (chunk.tokens[place].text == "}")
        if not depth:
            return chunk.tokens[place + 1 :]
    return ()


def _is_for_device(header: str) -> bool:
    """Whether a header stays in the device unit: all but torch's and Python's, and of these those for device code."""
    if header in _HOST_INCLUDES:
        return False
    if not header.startswith(_TORCH_INCLUDES):
        return True
    return header.endswith(".cuh") or header in _DEVICE_HEADERS.values()


def headers_for(device: str) -> tuple[str, ...]:
    """Headers for the remaining names that came with torch's: small ones of torch, and standard ones."""
    tokens = tokens_of(device)
    defined = [definition_of(token) for token in tokens if token.kind is Kind.DIRECTIVE]
    words = {token.text for token in tokens if token.kind is Kind.WORD}
    words |= {part.text for definition in defined if definition for part in definition.body}
    uses_torch = bool(words & _NAMESPACES)
    found = {_DEVICE_HEADERS[name] for name in words & set(_DEVICE_HEADERS) if uses_torch or name.isupper()}
    if "std" in words:
        found |= {_STANDARD_HEADERS[name] for name in words & set(_STANDARD_HEADERS)}
    return tuple(sorted(found))
