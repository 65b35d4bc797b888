"""What counts as a candidate, and how it is found in a raw model answer."""

from __future__ import annotations

import hashlib
import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from kerneljudge.terms.limits import MAX_SOURCE_BYTES

GOOD = '''import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """Applies ReLU."""

    def forward(self, x):
        return torch.relu(x)
'''
OTHER = GOOD.replace("relu", "sigmoid")
REFERENCE = GOOD.replace("ModelNew", "Model")
FENCES = ["```", "````", "~~~", "  ```", "\t```"]


def fenced(code: str, info: str = "python", fence: str = "```") -> str:
    return f"{fence}{info}\n{code}{fence}\n"


def graded(response: str) -> str:
    candidate = parse_candidate(response=response)
    assert isinstance(candidate, Candidate), candidate
    return candidate.source.strip()


def refused(
    *, code: str | None = None, response: str | None = None, max_bytes: int = MAX_SOURCE_BYTES
) -> InvalidSource:
    invalid = parse_candidate(code=code, response=response, max_bytes=max_bytes)
    assert isinstance(invalid, InvalidSource), invalid
    return invalid


# --- code as given ---------------------------------------------------------------------------------------------------


def test_code_is_taken_as_it_is() -> None:
    candidate = parse_candidate(code=GOOD)
    assert candidate == Candidate(GOOD, hashlib.sha256(GOOD.encode()).hexdigest(), "code")


def test_code_within_a_fence_is_accepted() -> None:
    candidate = parse_candidate(code=f"\n{fenced(GOOD)}")
    assert isinstance(candidate, Candidate)
    assert candidate.source.strip() == GOOD.strip()
    assert candidate.origin == "code"


def test_line_ends_and_byte_order_mark_do_not_change_the_digest() -> None:
    plain, windows = parse_candidate(code=GOOD), parse_candidate(code="\ufeff" + GOOD.replace("\n", "\r\n"))
    assert plain == windows


@pytest.mark.parametrize(
    "definition",
    [
        "class ModelNew: pass",
        "class ModelNew(Base, metaclass=Meta):\n    pass",
        "@decorated\nclass ModelNew(nn.Module): ...",
        "from model import Model as ModelNew",
        "from elsewhere import ModelNew",
        "class Fused: pass\nModelNew = Fused",
        "ModelNew: type = make()",
        "Other, ModelNew = make()",
        "if True:\n    class ModelNew: pass\nelse:\n    ModelNew = None",
        "try:\n    from a import ModelNew\nexcept ImportError:\n    class ModelNew: pass",
        "try:\n    import a\nexcept ImportError:\n    class ModelNew: pass",
        "with context():\n    class ModelNew: pass",
        "match x:\n    case 1:\n        class ModelNew: pass",
    ],
)
def test_every_way_to_bind_the_class_at_the_top_level_counts(definition: str) -> None:
    assert isinstance(parse_candidate(code=definition), Candidate)


@pytest.mark.parametrize(
    "source",
    ["def make():\n    class ModelNew: pass", "class Outer:\n    class ModelNew: pass", "x = 'class ModelNew:'"],
)
def test_a_definition_below_the_top_level_does_not_count(source: str) -> None:
    assert "does not define ModelNew" in refused(code=source).message


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (REFERENCE, "the source defines Model but not ModelNew: name the rewritten class ModelNew"),
        (GOOD.replace("ModelNew", "NewModel"), "the source defines NewModel: name the class ModelNew"),
        (GOOD.replace("ModelNew", "ModelNEW"), "the source defines ModelNEW: name the class ModelNew"),
        ("def f():\n    class ModelNew: pass", "ModelNew is a class within another block at line 2"),
        ("def ModelNew(): pass", "ModelNew is a function at line 1"),
    ],
)
def test_a_hint_says_what_may_have_been_meant(source: str, hint: str) -> None:
    assert any(hint in given for given in refused(code=source).hints)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class ModelNew(:\n    pass\n", "line 1, column 16: invalid syntax"),
        ("class ModelNew:\n    x = 1\n   y = 2\n", "line 3, column 9: unindent does not match"),
        ('class ModelNew:\n    s = """never closed\n', "line 2, column 9: unterminated triple-quoted string"),
        ("class ModelNew: pass\nreturn 1\n", "line 2, column 1: 'return' outside function"),
        ("class ModelNew: pass\nx = 'äö' +\n", "line 2, column 11: invalid syntax"),
    ],
)
def test_a_syntax_error_comes_with_line_and_column(source: str, message: str) -> None:
    assert refused(code=source).message.startswith(message)


def test_a_syntax_error_shows_the_line() -> None:
    assert refused(code="import torch\nclass ModelNew(:\n    pass\n").hints == ("line 2 reads: class ModelNew(:",)


def test_a_source_that_python_only_warns_about_is_valid() -> None:
    assert isinstance(parse_candidate(code="class ModelNew:\n    pattern = '\\d'\n    x = 1 is 1\n"), Candidate)


# --- what is not even text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "   \n\t\r\n", "\ufeff"])
def test_nothing_is_invalid(text: str) -> None:
    assert "empty" in refused(code=text).message
    assert "empty" in refused(response=text).message


def test_the_limit_counts_bytes_and_is_named() -> None:
    source = f"class ModelNew:\n    s = '{'ä' * 50}'\n"
    assert isinstance(parse_candidate(code=source, max_bytes=len(source.encode())), Candidate)
    invalid = refused(code=source, max_bytes=100)
    assert invalid.message == f"too large: {len(source.encode())} bytes, and at most 100 are read"
    assert len(invalid.source.encode()) <= 100


def test_a_nul_character_is_located_and_not_stored() -> None:
    invalid = refused(code="class ModelNew:\n    s = '\0'\n")
    assert invalid.message.startswith("line 2: a NUL character")
    assert "\0" not in invalid.source


def test_half_a_surrogate_pair_is_located_and_not_stored() -> None:
    invalid = refused(response="class ModelNew:\n    s = '\ud800'\n")
    assert invalid.message.startswith("line 2: character U+D800")
    invalid.source.encode()


@pytest.mark.parametrize(
    "nested",
    [
        "(" * 250_000,
        "x" + ".a" * 120_000,
        "not " * 70_000 + "x",
        "1+" * 120_000 + "1",
        "if x: pass\n" + "elif x: pass\n" * 20_000,
    ],
    ids=["parentheses", "attributes", "not", "sum", "elif"],
)
def test_deep_nesting_is_a_value_and_never_an_exception(nested: str) -> None:
    result = parse_candidate(code=f"class ModelNew: pass\n{nested}\n")
    if isinstance(result, InvalidSource):
        assert "nested too deeply" in result.message or "too many nested parentheses" in result.message


def test_a_long_chain_of_elif_is_searched_without_recursion() -> None:
    chain = "if x: pass\n" + "elif x: pass\n" * 500 + "else:\n    class ModelNew: pass\n"
    assert isinstance(parse_candidate(code=chain), Candidate)


@pytest.mark.parametrize("given", [{}, {"code": GOOD, "response": GOOD}])
def test_exactly_one_source_is_asked_for(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        parse_candidate(**given)  # type: ignore[arg-type] # keywords from a table


# --- model answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize(
    "info",
    [
        "",
        "python",
        "py",
        "Python",
        "python3",
        "cpp",
        "c++",
        "cuda",
        " python ",
        'python title="a.py"',
        "{.python}",
        "text",
    ],
)
def test_the_fence_and_its_tag_do_not_matter(fence: str, info: str) -> None:
    assert graded(f"Here it is.\n\n{fenced(GOOD, info, fence)}\nIt is faster.") == GOOD.strip()


def test_an_answer_without_a_fence_is_source() -> None:
    assert graded(GOOD) == GOOD.strip()


def test_the_last_block_that_defines_the_class_wins() -> None:
    answer = f"First\n{fenced(OTHER)}better\n{fenced(GOOD)}and use it so:\n{fenced('model = ModelNew()', 'py')}"
    assert graded(answer) == GOOD.strip()


def test_blocks_with_the_reference_or_kernels_only_are_passed_over() -> None:
    kernel = "__global__ void k(float* x) { /* class ModelNew: */ }\n"
    answer = fenced(GOOD) + fenced(REFERENCE) + fenced(kernel, "cuda") + fenced("class ModelNew : Base {};\n", "cpp")
    assert graded(answer) == GOOD.strip()


def test_a_block_with_a_syntax_error_is_the_candidate_if_it_defines_the_class_last() -> None:
    broken = GOOD.replace("return torch", "return = torch")
    invalid = refused(response=fenced(OTHER) + fenced(broken))
    assert invalid.message.startswith("line 9, column 16: invalid syntax")
    assert invalid.source.strip() == broken.strip()


@pytest.mark.parametrize("ending", ["", "\n", "\n``", "```"])
def test_a_last_fence_left_open_ends_with_the_answer(ending: str) -> None:
    if ending == "\n``":
        assert isinstance(refused(response=f"```python\n{GOOD}{ending}"), InvalidSource)
    else:
        assert graded(f"Here:\n```python\n{GOOD.rstrip()}{ending}") == GOOD.strip()


def test_an_answer_that_was_cut_off_says_so() -> None:
    invalid = refused(response=f"```python\n{GOOD}    def backward(self,")
    assert "the code block is never closed: the answer may have been cut off" in invalid.hints


def test_a_block_left_open_ends_where_the_next_begins() -> None:
    assert graded(f"```python\n{REFERENCE}\n```python\n{GOOD}```\n") == GOOD.strip()


def test_a_fence_that_the_prompt_had_opened_is_understood() -> None:
    assert graded(f"{GOOD}```\nThis is `ModelNew`.\n```python\ny = ModelNew()(x)\n```\n") == GOOD.strip()


@pytest.mark.parametrize("quote", ['"""', "'''", 'r"""'])
def test_fences_within_a_string_of_the_code_do_not_end_it(quote: str) -> None:
    doc = (
        f"{quote}Usage:\n```python\nmodel = ModelNew()\n```\nand # 'it''s \\{quote[-3:]} \n```\nmore\n```\n{quote[-3:]}"
    )
    code = f"{doc}\n{GOOD}"
    assert graded(f"{fenced(code)}Text with an apostrophe: it's.\n{fenced('x = 1')}") == code.strip()


def test_a_stray_triple_quote_in_a_text_block_swallows_nothing() -> None:
    answer = fenced('a lone """ here\n', "text") + fenced(GOOD)
    assert graded(answer) == GOOD.strip()


def test_a_block_within_a_markdown_block_is_found() -> None:
    assert graded(f"````markdown\nText\n\n{fenced(GOOD)}````\n") == GOOD.strip()


def test_an_indented_block_is_moved_to_the_left() -> None:
    indented = "".join(f"   {line}" if line.strip() else line for line in fenced(GOOD).splitlines(keepends=True))
    assert graded(f"1. The model:\n\n{indented}") == GOOD.strip()
    assert graded(f"```python\n{''.join('    ' + line for line in GOOD.splitlines(keepends=True))}```") == GOOD.strip()


def test_windows_line_ends_are_understood() -> None:
    assert graded(fenced(GOOD).replace("\n", "\r\n")) == GOOD.strip()


@pytest.mark.parametrize("name", ["think", "thinking", "reasoning", "Think", "thought"])
def test_reasoning_is_ignored(name: str) -> None:
    thoughts = f"I could write\n{fenced(OTHER)}or leave\n```python\nclass ModelNew(:\n"
    assert graded(f"<{name}>\n{thoughts}</{name}>\n{fenced(GOOD)}") == GOOD.strip()
    assert graded(f"{thoughts}</{name}>\n{fenced(GOOD)}") == GOOD.strip()
    assert graded(f"{fenced(GOOD)}\n<{name}>\n{thoughts}</{name}>") == GOOD.strip()
    assert graded(f"{fenced(GOOD)}\n<{name}>\n{thoughts}") == GOOD.strip()


def test_nested_reasoning_is_ignored() -> None:
    assert graded(f"<think><think>{fenced(OTHER)}</think>\n{fenced(OTHER)}</think>\n{fenced(GOOD)}") == GOOD.strip()


def test_an_answer_that_ends_in_its_reasoning_says_so() -> None:
    invalid = refused(response=f"<think>\n{fenced(GOOD)}")
    assert "no code block" in invalid.message
    assert any("ends within its reasoning section" in hint for hint in invalid.hints)


def test_a_class_in_the_reasoning_only_is_pointed_out() -> None:
    invalid = refused(response=f"<think>\n{fenced(GOOD)}</think>\nDone.")
    assert any("within the reasoning section only" in hint for hint in invalid.hints)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("I am sorry, but class ModelNew: is beyond me.", "the answer has no code block"),
        (fenced("x = 1\n"), "the answer's code block does not define ModelNew"),
        (fenced("x = 1\n") + fenced(REFERENCE), "none of the answer's 2 code blocks defines ModelNew"),
    ],
)
def test_an_answer_without_the_class_says_what_it_has(answer: str, message: str) -> None:
    assert message in refused(response=answer).message


def test_a_reference_in_the_answer_gives_the_hint() -> None:
    assert refused(response=fenced(REFERENCE)).hints == (
        "the answer defines Model but not ModelNew: name the rewritten class ModelNew",
    )


# --- fences in other places ------------------------------------------------------------------------------------------

_DRAFT = fenced(OTHER)


def _quoted(text: str, mark: str = "> ") -> str:
    return "".join(f"{mark}{line}\n" if line else f"{mark.rstrip()}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "answer",
    [
        f"Answer: ```python\n{GOOD}```\n",
        f"Here is the final version:```\n{GOOD}```\n",
        f"**Final answer:** ```py\n{GOOD}```\n",
        f"assistantfinal```python\n{GOOD}```\n",
        f"The kernel follows ```python\n{GOOD}```\nand that is all.",
        f"- ```python\n{textwrap.indent(GOOD, '  ')}  ```\n",
        f"1. ```python\n{textwrap.indent(GOOD, '   ')}   ```\n",
        f"2) ```python\n{GOOD}```\n",
        _quoted(fenced(GOOD)),
        _quoted(fenced(GOOD), "> > "),
        _quoted(fenced(GOOD), ">"),
        f"```python import torch\n{GOOD.removeprefix('import torch' + chr(10))}```\n",
        f"```import torch\n{GOOD.removeprefix('import torch' + chr(10))}```\n",
        f"```python # my_kernel.py\n{GOOD}```\n",
        f"\ufeff```python\n{GOOD}```\n",
        f"```python\n\ufeff{GOOD}```\n",
        f"```python\n# -*- coding: latin-1 -*-\n{GOOD}```\n",
        f"{fenced(GOOD)}I closed my reasoning with `</think>` before.\n",
        f"{fenced(GOOD)}The tag '</think>' is left out.\n",
        f"```python\n# what stands before </think> is cut off\n{GOOD}```\n",
        f'```python\nEND = "</think>"\n{GOOD}```\n',
    ],
)
@pytest.mark.parametrize("before", ["", _DRAFT, f"```python\n{OTHER}\n"], ids=["alone", "a draft", "an open draft"])
def test_a_fence_is_found_wherever_it_stands_and_no_draft_is_graded_in_its_place(answer: str, before: str) -> None:
    code = graded(f"{before}{answer}")
    assert "torch.relu(x)" in code
    assert "sigmoid" not in code


@pytest.mark.parametrize(
    "aloud",
    [
        f"analysisFirst I thought of this:\n{_DRAFT}assistantfinal",
        f"<|channel|>analysis<|message|>{_DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>",
    ],
)
def test_what_a_model_with_channels_thought_aloud_is_not_read(aloud: str) -> None:
    assert graded(f"{aloud}{fenced(GOOD)}") == GOOD.strip()
    assert "within the reasoning section only" in " ".join(refused(response=f"{aloud}I give up.").hints)


def test_three_backquotes_in_a_sentence_are_no_fence() -> None:
    answer = f"{fenced(GOOD)}\nA fence is written with ``` in Markdown, and with ~~~ elsewhere.\n"
    assert graded(answer) == GOOD.strip()


@pytest.mark.parametrize("name", ["latin-1", "utf8", "cp1252", "no-such-encoding", "utf-8"])
def test_an_encoding_that_is_declared_is_that_of_the_text(name: str) -> None:
    source = f'#!/usr/bin/env python\n# -*- coding: {name} -*-\nWORD = "\u00fcber"\n{GOOD}'
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate), candidate
    assert candidate.source == source.replace(f"coding: {name}", "coding: utf-8")
    assert candidate.source.encode().decode("utf-8") == candidate.source


def test_what_only_looks_like_a_declaration_is_left_alone() -> None:
    source = f"x = 1\n# coding: latin-1\n{GOOD}"
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    assert candidate.source == source


# --- properties ------------------------------------------------------------------------------------------------------

_MARKS = ["```", "````", "~~~", "python", '"""', "'''", '"', "'", "\\", "#", "<think>", "</think>", "\ufeff", "ä"]
_NOT_TEXT = ["\0", "\ud800"]
_CODE = ["class ModelNew: pass", "class ModelNew(", "ModelNew = 1", "def f():\n", "\n", "\n\n", "\r\n", " "]
_pieces = st.lists(st.sampled_from([*_MARKS, *_CODE, *_NOT_TEXT]) | st.text(max_size=8), max_size=60).map("".join)


@given(text=_pieces)
def test_any_text_gives_a_value(text: str) -> None:
    for result in (parse_candidate(code=text), parse_candidate(response=text)):
        result.source.encode()
        assert "\0" not in result.source
        if isinstance(result, Candidate):
            assert "ModelNew" in result.source
            assert parse_candidate(code=result.source) == Candidate(result.source, result.digest, "code")
        else:
            assert result.message


@given(before=_pieces, code=st.sampled_from([GOOD, OTHER]))
def test_whatever_comes_before_the_reasoning_ends_is_ignored(before: str, code: str) -> None:
    answer = f"{before}</think>\n{fenced(code)}".replace("\0", "").replace("\ud800", "")
    assert graded(answer) == code.strip()


@pytest.mark.parametrize(
    "unit",
    [
        "```\n",
        "```\nModelNew\n",
        "\\'",
        "'\\'",
        '"""\n```\n',
        "```\n'''\n```\n",
        "<think>",
        "</think>",
        " \n",
        "~~~\n```\n",
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(unit: str) -> None:
    started = time.monotonic()
    parse_candidate(response=unit * (900_000 // len(unit)))
    assert time.monotonic() - started < 30
