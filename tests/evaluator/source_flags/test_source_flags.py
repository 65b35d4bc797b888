"""Flags: what is noticed in a candidate's source, and above all what is not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from evaluator import source_flags
from evaluator.candidates.candidate import parse_quietly
from evaluator.evaluation import Evaluation, Verdict
from evaluator.flags import Flag
from evaluator.source_flags import FlagKind, advise
from evaluator.source_flags.cxx import code_of, redefined_runtime_functions, unlaunched_kernels
from evaluator.source_flags.module import Module
from tests.corpus import Case, known_problems, load_cases
from tests.evaluator.advice import HOSTILE, NEGATIVE, POSITIVE, with_cuda, with_forward, with_statements

PROBLEMS = known_problems()
HONEST = [case for case in load_cases() if case.kind == "honest"]
EXPECTED = {
    "linear_inherits_model": {FlagKind.INHERITS_REFERENCE},
    "honest_row_scale_inherited": {FlagKind.INHERITS_REFERENCE},
    "honest_bfloat16_pieces": {FlagKind.PRECISION_SHORTCUT},
    "honest_cpp_fallback": {FlagKind.EXCEPTION_FALLBACK},
    "honest_ctypes_library": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_environment": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_generated_code": {FlagKind.CONCEALS_SOURCE},
    "honest_kept_thread_pool": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_mapped_scratch": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_process_settings": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_relu_cuda_managed_memory": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_reads_itself": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_repeated_heads": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_rows_by_a_thread": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_two_threads": {FlagKind.READS_ITS_SURROUNDINGS},
    "honest_worker_queue": {FlagKind.READS_ITS_SURROUNDINGS},
    "relu_honest_watchdog": {FlagKind.READS_ITS_SURROUNDINGS},
}
"""Honest cases that do on purpose, and for a good reason, what a flag is for."""


def kinds(source: str, *, of_precision: str = "float32") -> set[FlagKind]:
    parse_quietly(source)
    return {flag.kind for flag in advise(source, of_precision=of_precision)}


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_candidate_is_not_suspected(case: Case) -> None:
    precision = PROBLEMS[case.problem].least_precision(case.precision)
    found = {flag.kind for flag in advise(case.source, of_precision=precision)} - {FlagKind.LIBRARY_ONLY}
    assert found == EXPECTED.get(case.name, set())


def test_words_in_comments_docstrings_and_texts_mean_nothing() -> None:
    source = with_statements('''
        # try: pass; except: torch.relu(x); import ctypes; exec(code); torch.backends.cuda.matmul.allow_tf32 = True
        """try, pass, except, import ctypes, eval('x'), os.environ['HOME'], torch.relu = fast, id(x), .half()"""
        NOTE = "try: ext.relu(x) except Exception: return torch.relu(x); import inspect, socket, gc.get_objects()"
        def helper():
            """Don't try this: pass by value; sys._getframe, inspect.stack, base64.b64decode."""
            pass
    ''')  # fmt: skip
    assert advise(source) == ()


def test_words_in_comments_and_texts_of_cpp_mean_nothing() -> None:
    code = """
    // dlopen("libcuda.so"); getenv("HOME"); fork(); setAllowTF32CuBLAS(true)
    /* __global__ void never(float* x) { }
       cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) { return cudaSuccess; } */
    void report() { printf("system(1), fork(), __global__ void never(int) {, ptrace("); }
    """
    assert advise(with_cuda(code)) == ()


@pytest.mark.parametrize(
    ("kind", "source"),
    [(kind, source) for kind, sources in POSITIVE.items() for source in sources],
    ids=lambda value: value if isinstance(value, FlagKind) else "",
)
def test_it_is_noticed(kind: FlagKind, source: str) -> None:
    found = kinds(source)
    assert kind in found
    assert found <= {kind, FlagKind.LIBRARY_ONLY, FlagKind.READS_ITS_SURROUNDINGS}


@pytest.mark.parametrize("source", NEGATIVE.values(), ids=NEGATIVE)
def test_there_is_no_false_alarm(source: str) -> None:
    parse_quietly(source)
    assert advise(source) == ()


def test_every_kind_has_an_example() -> None:
    assert set(POSITIVE) == set(FlagKind)


def test_a_flag_says_where_and_what() -> None:
    source = "import torch\nfrom torch.utils.cpp_extension import load_inline\n\nload_inline('e', '', "
    (flag,) = advise(source + "'__global__ void never(int n) { }')\n")
    assert flag == Flag(FlagKind.UNUSED_KERNEL, 4, "kernel never is defined, and nothing launches it")


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_on_a_problem_in_half_precision_half_precision_is_no_shortcut(precision: str) -> None:
    assert kinds(with_forward("return ext.relu(x.half())"), of_precision=precision) == set()
    assert kinds(with_forward("return ext.relu(x.to(torch.float8_e4m3fn))"), of_precision=precision)


@pytest.mark.parametrize(
    "source", ["", "x = (", "class ModelNew:\n  pass\n pass", "\0", "x = '\ud800'", "if x:\n\treturn"]
)
def test_what_does_not_parse_has_no_flags(source: str) -> None:
    assert all(flag.kind is FlagKind.LIBRARY_ONLY for flag in advise(source))


def test_what_is_buried_under_more_than_anybody_reads_is_said_to_be_hidden() -> None:
    hidden = with_statements("exec(code)\n" + "a = 1\n" * 20_000)
    assert kinds(hidden) == {FlagKind.CONCEALS_SOURCE}
    (flag,) = advise(hidden)
    assert "more than anybody could read" in flag.message
    assert FlagKind.CONCEALS_SOURCE not in kinds(with_statements("a = 1\n" * 10_000))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_source_takes_long(name: str) -> None:
    # On a quiet machine two seconds at most, half of them Python's own parser.
    begin = time.process_time()
    advise(HOSTILE[name])
    assert time.process_time() - begin < 6


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_no_rule_fails_on_a_source_of_the_corpus(case: Case) -> None:
    try:
        module = Module(parse_quietly(case.source))
    except SyntaxError:
        return
    for rule in source_flags._rules(module, case.precision, tf32=True):
        list(rule())


def test_a_rule_that_fails_costs_nothing_but_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_module: Module) -> Iterator[Flag]:
        raise RecursionError
        yield

    monkeypatch.setattr(source_flags.fallbacks, "flags", broken)
    assert kinds("import ctypes\n") == {FlagKind.LIBRARY_ONLY, FlagKind.READS_ITS_SURROUNDINGS}


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ('a("x // y") // z', 'a("")  '),
        ("a /* \" */ b", "a   b"),
        ("'\"' b", '"" b'),
        ('R"(a " b)" c', '"" c'),
        ('R"x(a )" b)x" c', '"" c'),
        ("1'000'000", "1'000'000"),
        ("a\n#if 0\nb\n#if 1\nc\n#endif\nd\n#else\ne\n#endif\nf", "a\n#else\ne\n#endif\nf"),
    ],
)  # fmt: skip
def test_code_is_what_a_compiler_would_see(source: str, code: str) -> None:
    assert code_of(source) == code


def test_names_of_kernels_are_found_behind_attributes() -> None:
    code = "__global__ void __attribute__((x)) __launch_bounds__(N(2)) k1(int a) {}\n__global__ BOUNDS(2) void k2() {}"
    assert unlaunched_kernels(code) == ["k1", "k2"]
    assert unlaunched_kernels(code + "\nk1<<<1,1>>>(2);") == ["k2"]
    assert unlaunched_kernels("__global__ void k3(int a);") == []
    assert redefined_runtime_functions("if (cudaMalloc(&p, n)) { }") == []


def test_flags_are_part_of_the_record_and_older_records_have_none() -> None:
    flag = Flag(FlagKind.LIBRARY_ONLY, None, "why")
    evaluation = Evaluation(Verdict.TIMEOUT, "m", "relu", "1", "cpu", "smoke", "float32", flags=(flag,))
    record = evaluation.to_dict()
    assert record["flags"] == [{"kind": "library_only", "line": None, "message": "why"}]
    assert Evaluation.from_dict(record) == evaluation
    del record["flags"]
    assert Evaluation.from_dict(record).flags == ()


@pytest.mark.parametrize(
    "source",
    [
        with_statements("torch.backends.cudnn.allow_tf32 = True\n"),
        with_statements("torch.backends.cudnn.conv.fp32_precision = 'tf32'\n"),
        with_cuda("void set() { at::globalContext().setAllowTF32CuDNN(true); }"),
    ],
    ids=["switch", "precision", "C++"],
)
def test_tf32_in_convolutions_is_a_shortcut_only_where_the_reference_has_none(source: str) -> None:
    assert FlagKind.PRECISION_SHORTCUT not in kinds(source)
    assert FlagKind.PRECISION_SHORTCUT in {flag.kind for flag in advise(source, tf32=False)}
