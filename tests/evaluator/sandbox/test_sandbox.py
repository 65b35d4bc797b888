"""The sandbox from the inside: candidates that try to reach what is none of their business, over a real engine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, Limits, SamplingPlan
from evaluator.engine import Callbacks, Engine
from evaluator.errors import EvaluationCancelled, InfrastructureFault, SandboxIncomplete
from evaluator.evaluation import Evaluation, Verdict
from evaluator.judge.link import RunnerGone, RunnerLink, RunnerTimeout
from evaluator.judge.runner_memory import ProcessMemory
from evaluator.judge.timing.timed_call import Participant
from evaluator.problems.problem import Problem
from evaluator.processes.environment import ProcessEnvironment
from evaluator.sandbox.cgroups import GroupParent
from evaluator.sandbox.client import ForkServer
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import visible_paths
from evaluator.sandbox.freezer import CannotBeStopped, Freezer
from evaluator.sandbox.layers import MEANING, Layer
from tests.corpus import load_case
from tests.machines import without_libseccomp

_PLAIN = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
_QUICK = SamplingPlan(min_samples=5, max_samples=5, warm_samples=0, settles=False)

Run = Callable[..., Evaluation]


@pytest.fixture
def run(cpu_engine: Engine, problems: dict[str, Problem]) -> Run:
    """Evaluate a plain candidate with ``code`` before it."""

    def evaluate(code: str, *, plain: str = _PLAIN, **limits: float) -> Evaluation:
        candidate = parse_candidate(code=code + "\n" + plain)
        assert isinstance(candidate, Candidate)
        config = EvalConfig(device="cpu", size="smoke", sampling=_QUICK, limits=Limits(**limits))  # type: ignore[arg-type]
        return cpu_engine.evaluate(problems["relu"], candidate, config)

    return evaluate


def _passes(evaluation: Evaluation) -> None:
    assert evaluation.verdict is Verdict.PASSED, (evaluation.message, evaluation.log)


def test_every_layer_but_the_optional_ones_is_there(cpu_engine: Engine, run: Run) -> None:
    assert {layer.name for layer in cpu_engine.layers if layer.there or layer.optional} == set(Layer)
    assert not any("refused" in note for note in run("").notes)


def test_every_layer_has_a_meaning() -> None:
    assert set(MEANING) == set(Layer)


def _ways(folder: Path) -> list[str]:
    """The names in ``folder`` that lead to a visible path."""
    below = [Path(path).relative_to(folder) for path in visible_paths() if Path(path).is_relative_to(folder)]
    return [path.parts[0] for path in below if path.parts]


def test_only_the_ways_to_visible_paths_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    visible = ("/usr", "/home/somebody/kerneljudge/.venv")
    monkeypatch.setattr("tests.evaluator.sandbox.test_sandbox.visible_paths", lambda: visible)
    assert (_ways(Path("/home")), _ways(Path("/var")), _ways(Path("/usr"))) == (["somebody"], [], [])


def test_nothing_is_visible_but_the_system_and_python(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    folders = [
        str(tmp_path),
        str(Path(__file__).parents[1]),
        "/home",
        "/var",
        "/etc/shadow",
        "/boot",
        "/mnt",
        "/dev/shm",
    ]
    # Where Python or this checkout lies in one of them, that alone is seen there.
    ways = {folder: _ways(Path(folder)) for folder in folders}
    _passes(
        run(
            f"""
import os
for folder, ways in {ways}.items():
    found = os.listdir(folder) if os.path.isdir(folder) else [folder] * os.path.exists(folder)
    assert set(found) <= set(ways), (folder, found)
assert not [name for name in os.listdir("/dev") if name.startswith(("sd", "vd", "nvme", "mem", "kvm", "fuse", "tty"))]
assert sorted(os.listdir(".")) == ["__pycache__", "candidate.py", "model.py"], os.listdir(".")
"""
        )
    )


def test_nothing_of_the_project_is_visible(run: Run, cpu_engine: Engine, artifact_cache: Path) -> None:
    project = Path(__file__).parents[3]
    _passes(
        run(
            f"""
import glob, os, sys
for path in [{str(artifact_cache)!r}, {str(project / "evaluator")!r}, {str(project / "storage")!r}]:
    assert not os.path.isdir(path) or not os.listdir(path), path
assert not [path for folder in sys.path for path in glob.glob(folder + "/evaluator/*.py")]
"""
        )
    )


def test_a_database_on_this_machine_cannot_be_opened(run: Run, tmp_path: Path) -> None:
    database = tmp_path / "kerneljudge.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE submissions (source TEXT)")
    _passes(
        run(
            f"""
import sqlite3
try:
    sqlite3.connect("file:{database}?mode=rw", uri=True).execute("VACUUM")
    raise AssertionError("reached the database")
except sqlite3.OperationalError as error:
    assert "unable to open" in str(error), error
"""
        )
    )


def test_servers_on_this_machine_cannot_be_reached(run: Run, tmp_path: Path) -> None:
    path, abstract = str(tmp_path / "broker.sock"), f"\0kerneljudge-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        other = socket.socket(socket.AF_UNIX)
        unix.bind(path)
        other.bind(abstract)
        unix.listen()
        other.listen()
        evaluation = run(
            f"""
import socket
for family, address in [(socket.AF_INET, ("127.0.0.1", {tcp.getsockname()[1]})), (socket.AF_INET, ("10.0.0.1", 80)),
                        (socket.AF_INET, ("169.254.169.254", 80)), (socket.AF_UNIX, {path!r}),
                        (socket.AF_UNIX, {abstract!r})]:
    try:
        socket.socket(family).connect(address)
        raise AssertionError(f"connected to {{address}}")
    except OSError:
        pass
try:
    socket.socket(socket.AF_VSOCK)
    raise AssertionError("made a socket to the host")
except OSError:
    pass
"""
        )
        other.close()
    _passes(evaluation)


def test_no_environment_and_no_process_of_ours_is_visible(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELJUDGE_DATABASE_URL", "postgresql://user:hunter2@host/db")
    _passes(
        run(
            """
import os, pathlib
assert not [name for name in os.environ if "KERNELJUDGE" in name or "hunter2" in os.environ[name]]
processes = [name for name in os.listdir("/proc") if name.isdigit()]
assert processes == ["1"], processes
assert os.getpid() == 1
assert b"hunter2" not in pathlib.Path("/proc/self/environ").read_bytes()
"""
        )
    )


def test_what_belongs_to_the_whole_machine_cannot_be_written(run: Run) -> None:
    _passes(
        run(
            """
import os, torch
for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/usr/kerneljudge",
             "/sys/devices/system/cpu/cpu0/online", os.path.dirname(torch.__file__) + "/x.py",
             os.path.join(os.path.dirname(os.__file__), "x.py"), "/etc/ld.so.cache", "/proc/irq/0/smp_affinity"]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    except OSError:
        continue
    raise AssertionError(path)
"""
        )
    )


def test_system_calls_that_break_kernels_are_refused(run: Run) -> None:
    _passes(
        run(
            """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"ptrace": 101, "mount": 165, "unshare": 272, "bpf": 321, "keyctl": 250, "perf_event_open": 298,
           "userfaultfd": 323, "io_uring_setup": 425, "process_vm_writev": 311, "timer_create": 222, "personality": 135,
           "timerfd_create": 283, "inotify_init": 253, "inotify_init1": 294, "inotify_add_watch": 254, "io_setup": 206}
import platform
if platform.machine() == "x86_64":
    for name, number in numbers.items():
        assert libc.syscall(number, 0, 0, 0, 0, 0) == -1, name
        assert ctypes.get_errno() in (errno.EPERM, errno.ENOSYS), (name, ctypes.get_errno())
    # The kernel looks at the lower half of an int alone: a bit in the upper half gets nobody by.
    class Limit(ctypes.Structure):
        _fields_ = [("soft", ctypes.c_ulong), ("hard", ctypes.c_ulong)]
    file = open("/proc/self/exe", "rb")
    for beyond in (0, 1 << 32, 1 << 63):
        long = lambda value: ctypes.c_ulong(value | beyond)
        limit = ctypes.byref(Limit(10, 10))
        for refused in (
            (72, file.fileno(), long(10), 0), (72, file.fileno(), long(1024), 0), (72, file.fileno(), long(1026), 0),
            (157, long(22), 1, 0, 0, 0), (160, long(0), limit), (302, 0, long(0), limit, 0),
        ):
            assert libc.syscall(*refused) == -1, refused
            assert ctypes.get_errno() in (errno.EPERM, errno.ENOSYS), (refused, ctypes.get_errno())
import fcntl, resource
assert fcntl.fcntl(file, fcntl.F_GETFD) == fcntl.FD_CLOEXEC
assert fcntl.fcntl(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3), fcntl.F_GETFL) >= 0
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
assert libc.unshare(0x10000000) == -1
"""
        )
    )


_FILLS_THE_DISK = """
import errno, os
written = 0
try:
    for number in range(1000):
        with open(f"{'/dev/shm' if number % 2 else '/tmp'}/{number}", "wb") as file:
            written += file.write(bytes(2**22))
    raise AssertionError("no bound")
except OSError as error:
    assert error.errno == errno.ENOSPC, error
assert written <= 2**26, written
for number in range(16):
    for folder in ("/tmp", "/dev/shm"):
        if os.path.exists(f"{folder}/{number}"):
            os.remove(f"{folder}/{number}")
"""


def test_files_are_bounded_together_and_gone_afterwards(run: Run) -> None:
    lost = []
    # Other programs write files of their own meanwhile, but hardly each time.
    while len(lost) < 3 and (not lost or lost[-1] >= 2**14):
        before = os.statvfs("/tmp").f_bfree
        _passes(run(_FILLS_THE_DISK, disk_bytes=2**26))
        lost.append(before - os.statvfs("/tmp").f_bfree)
    assert lost[-1] < 2**14, lost


def test_too_much_memory_is_out_of_memory(run: Run) -> None:
    evaluation = run("hog = bytearray(3 * 2**30)", memory_bytes=2 * 2**30)
    assert evaluation.verdict is Verdict.OUT_OF_MEMORY
    _passes(run(""))


def test_processes_and_threads_are_limited_and_end_with_their_runner(run: Run) -> None:
    evaluation = run(
        """
import os, signal, time
children = []
try:
    while len(children) < 5000:
        child = os.fork()
        if child == 0:
            time.sleep(600)
        children.append(child)
    raise AssertionError("no bound")
except OSError:
    print("started", len(children))
for child in children[2:]:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
""",
        processes=100,
    )
    assert "started" in evaluation.log, (evaluation.message, evaluation.log)
    assert 50 < int(evaluation.log.rpartition("started ")[2].split()[0]) < 400
    _passes(evaluation)
    _passes(run(""))


def test_a_flood_of_output_is_cut_and_harms_nobody(run: Run) -> None:
    evaluation = run("import os\nfor _ in range(200):\n    os.write(1, b'x' * 2**20)\nos.write(2, b'end')")
    _passes(evaluation)
    assert 2**15 < len(evaluation.log) < 2**18


def test_a_compiler_sees_no_more_than_a_candidate(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret.h").write_text("#error hunter2")
    evaluation = run(
        f"""
from torch.utils.cpp_extension import load_inline
load_inline(name="nosy", cpp_sources='#include "{tmp_path}/secret.h"')
"""
    )
    assert evaluation.verdict is Verdict.COMPILE_ERROR
    assert "No such file" in evaluation.message
    assert "hunter2" not in evaluation.log + evaluation.message


@pytest.mark.timeout(400)
def test_a_candidate_cannot_change_what_the_cache_holds(
    cpu_engine: Engine, problems: dict[str, Problem], artifact_cache: Path
) -> None:
    honest = load_case("relu_honest_cpp").source
    vandal = (
        honest
        + """
import glob, os
for path in [*glob.glob("/candidate/extensions/*/*.so"), *[f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]]:
    try:
        os.chmod(path, 0o777)
        with open(path, "r+b") as file:
            file.write(b"overwritten")
    except OSError:
        pass
"""
    )
    config = EvalConfig(device="cpu", size="smoke", sampling=_QUICK)

    def evaluate(source: str) -> Verdict:
        candidate = parse_candidate(code=source)
        assert isinstance(candidate, Candidate)
        return cpu_engine.evaluate(problems["relu"], candidate, config).verdict

    assert evaluate(honest) is Verdict.PASSED
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in artifact_cache.rglob("*.so")}
    assert before
    evaluate(vandal)
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in artifact_cache.rglob("*.so")} == before
    assert all(path.stat().st_mode & 0o222 == 0 for path in before)


def test_a_sandbox_that_is_required_and_incomplete_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: dict[str, Problem]
) -> None:
    # A fork server that finds no libseccomp: the layer is missing for real.
    monkeypatch.setattr(sys, "path", without_libseccomp(tmp_path)["PYTHONPATH"].split(os.pathsep))
    with pytest.raises(SandboxIncomplete, match="syscalls"):
        Engine(device="cpu", cache_dir=tmp_path / "cache", require_sandbox=True).start()
    with Engine(device="cpu", cache_dir=tmp_path / "cache") as engine:
        assert "syscalls" in [layer.name for layer in engine.layers if not layer.there]
        candidate = parse_candidate(code=_PLAIN)
        assert isinstance(candidate, Candidate)
        config = EvalConfig(device="cpu", size="smoke", sampling=_QUICK)
        evaluation = engine.evaluate(problems["relu"], candidate, config)
    assert "the kernel refused these layers of isolation: syscalls" in evaluation.notes


def test_a_confinement_survives_its_way_to_another_process(tmp_path: Path) -> None:
    surroundings = ProcessEnvironment("cpu", cache_dir=tmp_path, scratch_dir=tmp_path)
    confinement = surroundings.runner_confinement(Limits(processes=400))
    assert Confinement.from_json(confinement.to_json()) == confinement
    assert confinement.processes == 400


@pytest.mark.parametrize(("processors", "processes"), [(None, 136), (2, 144), (16, 256), (256, 1024)])
def test_a_candidate_may_have_more_processes_on_more_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: int | None, processes: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    surroundings = ProcessEnvironment("cpu", cache_dir=tmp_path, scratch_dir=tmp_path)
    assert surroundings.runner_confinement(Limits()).processes == processes


def test_nothing_is_told_of_whom_the_kernel_has_not_ended_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: dict[str, Problem]
) -> None:
    # One that does not end by itself when its control socket does.
    sleepy = parse_candidate(code="import time\ntime.sleep(600)\n" + _PLAIN)
    assert isinstance(sleepy, Candidate)
    config = EvalConfig(device="cpu", size="smoke", sampling=_QUICK, limits=Limits(load_s=1.0, build_s=1.0))
    with Engine(device="cpu", cache_dir=tmp_path) as engine:
        with monkeypatch.context() as without_end:
            without_end.setattr("evaluator.sandbox.client._KILL_S", 0.1)
            without_end.setattr(ForkServer, "begin_kill", lambda *_: None)
            with pytest.raises(InfrastructureFault, match="survived its end"):
                engine.build(problems["relu"], sleepy, config)
            with pytest.raises(InfrastructureFault, match="survived its end"):
                engine.evaluate(problems["relu"], sleepy, config)
            # Nor where nobody wants to know any more: what follows would be measured beside it.
            for work in (engine.build, engine.evaluate):
                passed = iter([False] * 3)
                with pytest.raises(InfrastructureFault, match="survived its end") as caught:
                    work(problems["relu"], sleepy, config, Callbacks(cancelled=partial(next, passed, True)))
                assert isinstance(caught.value.__context__, EvaluationCancelled)
        assert engine.evaluate(problems["relu"], sleepy, config).verdict is Verdict.TIMEOUT


def test_no_candidate_may_have_as_many_descriptors_as_we(tmp_path: Path, problems: dict[str, Problem]) -> None:
    source = "import resource\nprint('it has', resource.getrlimit(resource.RLIMIT_NOFILE)[1])\n" + _PLAIN
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with Engine(device="cpu", cache_dir=tmp_path) as engine:
            ours = [os.getpid(), *(engine.process_ids[role] for role in ("judge", "forkserver", "builder"))]
            allowed = [resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] for pid in ours]
            config = EvalConfig(device="cpu", size="smoke", sampling=_QUICK)
            log = engine.evaluate(problems["relu"], candidate, config).log
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert min(allowed) == min(hard, 2**16)
    assert f"it has {min(hard, 4096)}" in log


def test_visible_paths_never_hold_a_whole_root_and_do_not_nest() -> None:
    paths = [Path(name) for name in visible_paths(["/", "", "relative", "/usr/lib", "/tmp"])]
    assert Path("/") not in paths
    assert Path("/tmp") in paths
    assert not [(one, other) for one in paths for other in paths if one != other and one.is_relative_to(other)]


# --- standing still --------------------------------------------------------------------------------------------------

_PING_PONG = """
import os, signal, sys
sys.stdin.readline()  # a child that there is before its parent is in the group would be outside of it
signal.signal(signal.SIGCONT, lambda *_: None)
other = os.getpid()
child = os.fork()
pid = other if child == 0 else child
while True:
    os.kill(pid, signal.SIGCONT)
"""


@pytest.fixture(params=["as here", "signals"])
def freezer(request: pytest.FixtureRequest) -> Iterator[Freezer]:
    """Two processes that wake each other all the time: in a control group if one can be made here, and in none."""
    parent = GroupParent.open() if request.param == "as here" else None
    group = parent.create("test", memory_bytes=2**30, processes=64) if parent is not None else None
    process = subprocess.Popen(
        [sys.executable, "-c", _PING_PONG], start_new_session=True, stdin=subprocess.PIPE, text=True
    )
    if group is not None:
        (group.path / "cgroup.procs").write_text(str(process.pid))
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.close()
    time.sleep(0.5)
    stopped = Freezer(process.pid, None if group is None else str(group.path))
    yield stopped
    stopped.close()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if group is not None and parent is not None:
        assert group.remove()
        parent.close()


def _consumed_s(session: int) -> float:
    """Processor time of all processes of a session."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_processes_that_wake_each_other_stand_still_or_are_found_out(freezer: Freezer) -> None:
    stood_s = 0.0
    for _ in range(10):
        freezer.freeze()
        before = _consumed_s(freezer.pid)
        time.sleep(0.1)
        stood_s += _consumed_s(freezer.pid) - before
        freezer.thaw()
        time.sleep(0.01)
    assert _consumed_s(freezer.pid) > 0.1
    if freezer._group is not None:
        assert stood_s < 0.05
    assert freezer.ran_while_stopped_s >= stood_s / 2 or stood_s < 0.05


def test_a_group_that_is_gone_is_neither_stopped_nor_let_go_on(tmp_path: Path) -> None:
    gone = Freezer(os.getpid(), str(tmp_path / "gone"))
    gone.freeze()
    gone.thaw()
    gone.close()


def test_who_cannot_be_stopped_is_out_of_time_and_the_baseline_is_our_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.freeze").write_text("")
    events = tmp_path / "cgroup.events"
    events.write_text("populated 1\nfrozen 0\n")
    monkeypatch.setattr("evaluator.sandbox.freezer._FREEZE_S", 0.1)
    freezer = Freezer(os.getpid(), str(tmp_path))
    link = cast(RunnerLink, None)
    with pytest.raises(RunnerTimeout, match="could not be stopped"):
        Participant("candidate", link, freezer, ProcessMemory(os.getpid())).stop()
    with pytest.raises(CannotBeStopped, match="could not be stopped"):
        Participant("baseline", link, freezer, ProcessMemory(os.getpid())).stop()
    # Who is gone is gone, however long the kernel takes over it; of anybody else it is what counts.
    for error, told in ((RunnerGone(), RunnerGone), (RuntimeError(), RunnerTimeout)):
        with (
            pytest.raises(told),
            Participant("candidate", link, freezer, ProcessMemory(os.getpid())).stopped_afterwards(),
        ):
            raise error
    # A machine that came to nothing for longer than that has not shown that it cannot.
    monkeypatch.setattr("evaluator.sandbox.freezer._FREEZE_S", -1.0)
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 50:
            events.write_text("populated 1\nfrozen 1\n")

    monkeypatch.setattr(time, "sleep", sleep)
    Participant("candidate", link, freezer, ProcessMemory(os.getpid())).stop()
    freezer.close()
    assert len(looks) == 50


def test_an_enclosure_keeps_no_descriptor_when_it_is_closed(tmp_path: Path) -> None:
    (tmp_path / "cgroup.freeze").write_text("")
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    before = len(list(Path("/proc/self/fd").iterdir()))
    stopped = Freezer(os.getpid(), str(tmp_path))
    stopped.freeze()
    assert (tmp_path / "cgroup.freeze").read_text() == "1"
    stopped.thaw()
    assert (tmp_path / "cgroup.freeze").read_text() == "0"
    stopped.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with contextlib.ExitStack() as files:
        others = [tmp_path / name for name in ("first", "second")]
        for other in others:
            files.enter_context(other.open("w"))  # they have its numbers now
        stopped.freeze()
        stopped.thaw()
        assert [other.read_text() for other in others] == ["", ""]


_LONG_REQUEST = """
import mmap, signal, sys, threading, time
block = mmap.mmap(-1, 2**29, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(mmap.MADV_NOHUGEPAGE)
def ask():
    while True:
        block.madvise(23)  # MADV_POPULATE_WRITE
        block.madvise(mmap.MADV_DONTNEED)
threading.Thread(target=ask, daemon=True).start()
print("there", flush=True)
while True:
    signal.pause()
"""
_LEAVES_MEMORY = """
import mmap, os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    child = os.fork()
    if child == 0:
        block = mmap.mmap(-1, 2**28, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(mmap.MADV_NOHUGEPAGE)
        block.madvise(23)  # MADV_POPULATE_WRITE
        os.kill(os.getpid(), signal.SIGKILL)
    print("there", flush=True)
    while True:
        try:
            os.waitpid(child, 0)
        except ChildProcessError:
            break
"""
_RELAY = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("there", flush=True)
if os.fork() == 0:
    while True:
        until = time.monotonic() + 0.0002
        while time.monotonic() < until:
            pass
        if os.fork():
            os._exit(0)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("source", [_LONG_REQUEST, _LEAVES_MEMORY], ids=["long request", "leaves memory"])
def test_nothing_that_was_asked_of_the_kernel_goes_on_while_processes_are_stopped(source: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", source], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    stopped = Freezer(process.pid, None)
    try:
        for number in range(20):
            time.sleep(0.01 + 0.003 * number)
            stopped.freeze()
            assert _running(process.pid) == []
            stopped.thaw()
        assert stopped.ran_while_stopped_s <= 0.05
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _running(session: int) -> list[str]:
    """The threads of a session's processes that are neither stopped nor dead: their states."""
    states = []
    for path in Path("/proc").glob("[0-9]*/task/*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "TtZX":
                states.append(fields[0])
    return states


def test_a_chain_of_processes_is_stopped_or_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.sandbox.freezer._FREEZE_S", 0.5)
    process = subprocess.Popen(
        [sys.executable, "-c", _RELAY], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    stopped = Freezer(process.pid, None)
    try:
        stopped.freeze()
    except CannotBeStopped:
        pass
    else:
        assert _running(process.pid) == []
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
