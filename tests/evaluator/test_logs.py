"""Log lines: their form, what they are about, and those of processes below a supervisor."""

from __future__ import annotations

import json
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import copy_context

import pytest

from evaluator import logs
from evaluator.protocol.child_process import ChildProcess

_log = logging.getLogger("evaluator.test_logs")


Written = Callable[[], list[str]]


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Written]:
    """The lines that were written to standard error; afterwards, logging is as it was before."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers), {name: logging.getLogger(name).level for name in logs.QUIET})
    for handler in before[1]:
        root.removeHandler(handler)  # pytest's own, which configure would close

    def read() -> list[str]:
        return capsys.readouterr().err.splitlines()

    with warnings.catch_warnings():
        yield read
        logging.captureWarnings(False)
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.setLevel(before[0])
    for handler in before[1]:
        root.addHandler(handler)
    for name, level in before[2].items():
        logging.getLogger(name).setLevel(level)


def lines(written: Written) -> list[dict[str, str]]:
    return [json.loads(line) for line in written()]


def test_a_json_line_has_its_fields_and_nothing_can_break_it(written: Written) -> None:
    logs.configure("json", "INFO")
    with logs.about(request_id="r1"), logs.about(submission="sub_1"):
        _log.info("one\ntwo %s", '"\x00é')
        logs.add_fields(trace_id="t1", level="mine")
        _log.info("later", extra={"fields": {"submission": "sub_2"}})
    _log.info("outside")
    first, second, third = lines(written)
    assert set(first) == {"time", "level", "logger", "message", "request_id", "submission"}
    assert first["message"] == 'one\ntwo "\x00é'
    assert first["time"].endswith("+00:00")
    assert (first["level"], first["logger"], first["submission"]) == ("info", "evaluator.test_logs", "sub_1")
    assert (second["submission"], second["trace_id"], second["level"]) == ("sub_2", "t1", "info")
    assert "submission" not in third


def test_a_text_line_names_what_it_is_about(written: Written) -> None:
    logs.configure("text", "INFO")
    with logs.about(request_id="r1", trace_id="t1", submission="sub_1"):
        _log.info("hello")
    _log.info("bye")
    first, second = written()
    assert first.endswith("INFO evaluator.test_logs [r1 sub_1] hello")
    assert second.endswith("INFO evaluator.test_logs [-] bye")


def test_an_exception_and_a_warning_are_part_of_a_line(written: Written) -> None:
    logs.configure("json", "INFO")
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        _log.exception("it failed")
    warnings.simplefilter("always")
    warnings.warn("careful", stacklevel=1)
    failed, warned = lines(written)
    assert failed["exception"].startswith("Traceback")
    assert failed["exception"].endswith("ZeroDivisionError: by zero")
    assert (warned["logger"], "careful" in warned["message"]) == ("py.warnings", True)


@pytest.mark.parametrize(("level", "expected"), [("DEBUG", 3), ("WARNING", 1), ("ERROR", 0)])
def test_a_level_holds_back_what_is_below_it(written: Written, level: str, expected: int) -> None:
    logs.configure("text", level)
    for number in (logging.DEBUG, logging.INFO, logging.WARNING):
        _log.log(number, "a line")
    logging.getLogger("celery.worker").info("what libraries say is never told below a warning")
    assert len(written()) == expected


def test_a_thread_in_a_copied_context_logs_about_the_same(written: Written) -> None:
    logs.configure("json", "INFO")
    with logs.about(submission="sub_1"):
        thread = threading.Thread(target=copy_context().run, args=(_log.info, "from a thread"))
    thread.start()
    thread.join()
    assert lines(written)[0]["submission"] == "sub_1"


class _Child(ChildProcess):
    """Asks a process of its kind to do something."""

    def __init__(self) -> None:
        super().__init__(
            "tests.evaluator.talkative_child", environment=dict(os.environ), display_name="the child", stop_s=10.0
        )
        self._launch(30.0)

    def ask(self, op: str, text: str, number: int = 0) -> None:
        if number:
            self.keep_log_fields(number)
        self._send({"op": op, "text": text, "number": number})
        self._receive()


def test_what_a_child_says_is_about_what_it_was_asked_for(written: Written) -> None:
    logs.configure("json", "INFO")
    child = _Child()
    try:
        with logs.about(submission="sub_7"):
            child.ask("report", "seven", 7)
        child.ask("report", "nobody knows")
        with logs.about(submission="sub_8"):
            child.ask("print", "something plain", 8)
            child.ask("print", "kerneljudge-report no json")
    finally:
        child.close()
    reported, unknown, plain, broken = lines(written)
    assert (reported["logger"], reported["level"], reported["submission"]) == ("child.module", "error", "sub_7")
    assert reported["message"] == "it failed"
    assert reported["exception"].endswith("ZeroDivisionError: seven")
    assert (plain["message"], plain["level"]) == ("the child: something plain", "warning")
    assert plain["submission"] == broken["submission"] == "sub_8"
    assert "submission" not in unknown


def test_what_a_child_said_last_is_logged_before_it_is_closed(written: Written) -> None:
    logs.configure("json", "INFO")
    child = _Child()
    child.ask("print", "x" * 200_000)
    child.close()
    assert sum(len(line["message"].removeprefix("the child: ")) for line in lines(written)) == 200_000
