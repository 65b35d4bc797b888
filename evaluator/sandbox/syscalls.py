"""A seccomp filter for confined processes, compiled by libseccomp. Torch-free.

Every system call that libseccomp knows is allowed but those below. A model, a compiler or CUDA has no use for these,
and kernels get broken into through them. A call that libseccomp does not know (yet) does not exist here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from functools import cache
from typing import Any, Final

__all__ = ["apply_filter", "compile_filter"]

_DENIED: Final = frozenset(
    """
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init
    fanotify_mark finit_module fsconfig fsmount fsopen fspick get_kernel_syms init_module inotify_add_watch
    inotify_init inotify_init1 io_setup io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp
    kexec_file_load kexec_load keyctl lookup_dcookie memfd_secret migrate_pages modify_ldt mount mount_setattr
    move_mount move_pages mq_notify name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open
    personality pidfd_getfd pivot_root process_madvise process_mrelease process_vm_readv process_vm_writev
    ptrace query_module quotactl quotactl_fd reboot request_key seccomp setdomainname sethostname setns
    settimeofday swapoff swapon sysfs syslog timer_create timerfd_create umount umount2 unshare uselib
    userfaultfd ustat vhangup vm86 vm86old
    """.split()  # noqa: SIM905 - a list this long is read as text
)
# New namespaces, and children whose end sends another signal than usual: SIGCONT would wake a stopped parent.
_CLONE_DENIED: Final = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
_EXIT_SIGNAL: Final = 0xFF
# Timers that a stopped process has armed go off all the same. Each of thousands in thousands of epoll sets keeps a
# processor from the baseline (timer_create, timerfd_create). So does every access of the judge's to a file that is
# watched (inotify, F_NOTIFY). Watches and asynchronous requests (io_setup) are counted by user or machine, and the
# service's own are among them. A lease (F_SETLEASE) keeps others waiting that open the file.
_FCNTL_COMMANDS: Final = (*range(10), *range(11, 18), 36, 37, 38, 1025, *range(1027, 1041))
"""All commands but ``F_SETSIG`` (10), ``F_SETLEASE`` (1024) and ``F_NOTIFY`` (1026)."""
# By a filter of its own or a limit on its processor time, a process can have itself killed as if by another process.
# The killer of a runner decides whose fault it is: hence neither is allowed. The socket families are AF_UNIX, AF_INET,
# AF_INET6 and AF_NETLINK: some of the others are not bound to a network namespace (AF_VSOCK).
_SOCKET_FAMILIES: Final = (1, 2, 10, 16)

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_EQUAL: Final = 4
_MASKED_EQUAL: Final = 7
_OPTIMIZE: Final = 8
_ARGUMENT_BITS: Final = 32
"""The bits that the kernel reads of an argument that is an ``int``; a filter sees all 64 of its register."""
_HIGHEST_NUMBER: Final = 1024
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_INSTRUCTION_BYTES: Final = 8


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


@cache
def compile_filter() -> bytes | None:
    """Return the filter as a BPF program; ``None`` where libseccomp is missing or too old."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
        return _compile(library)
    except (OSError, AttributeError):
        return None


def apply_filter() -> bool:
    """Put the calling process under the filter, for good. Needs ``no_new_privs``."""
    program = compile_filter()
    if program is None:
        return False
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(header), 0, 0) == 0)


def _compile(library: Any) -> bytes:
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
    library.seccomp_arch_native.restype = ctypes.c_uint32
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    context = ctypes.c_void_p(library.seccomp_init(_ERRNO | errno.ENOSYS))
    try:
        library.seccomp_attr_set(context, _OPTIMIZE, 2)
        for number in range(_HIGHEST_NUMBER):
            text = library.seccomp_syscall_resolve_num_arch(library.seccomp_arch_native(), number)
            if not text:
                continue
            name = ctypes.string_at(text).decode()
            free(text)
            if name == "clone3":
                continue  # a filter cannot see its flags; on ENOSYS, glibc falls back to clone
            if name in _DENIED:
                _rule(library, context, _ERRNO | errno.EPERM, number)
            elif name == "clone":
                for exit_signal in (0, signal.SIGCHLD):
                    _rule(
                        library,
                        context,
                        _ALLOW,
                        number,
                        _Comparison(0, _MASKED_EQUAL, _CLONE_DENIED | _EXIT_SIGNAL, exit_signal),
                    )
            elif name == "socket":
                for family in _SOCKET_FAMILIES:
                    _rule(library, context, _ALLOW, number, _Comparison(0, _EQUAL, family, 0))
            elif name == "fcntl":
                for command in _FCNTL_COMMANDS:
                    _rule(library, context, _ALLOW, number, _Comparison(1, _EQUAL, command, 0))
            elif name == "prctl":
                _allow_unless(library, context, number, 0, _PR_SET_SECCOMP)
            elif name == "setrlimit":
                _allow_unless(library, context, number, 0, resource.RLIMIT_CPU)
            elif name == "prlimit64":
                _allow_unless(library, context, number, 1, resource.RLIMIT_CPU)
            else:
                _rule(library, context, _ALLOW, number)
        return _export(library, context)
    finally:
        library.seccomp_release(context)


def _allow_unless(library: Any, context: Any, number: int, argument: int, refused: int) -> None:
    """Allow a system call unless its ``argument``, an ``int``, is ``refused``.

    The rule allows arguments with a different bit in the lower half. A comparison for "not equal" would cover the upper
    half as well, which the kernel ignores: a bit there would be enough to get by.
    """
    for bit in (1 << place for place in range(_ARGUMENT_BITS)):
        _rule(library, context, _ALLOW, number, _Comparison(argument, _MASKED_EQUAL, bit, ~refused & bit))


def _rule(library: Any, context: Any, action: int, number: int, *comparisons: _Comparison) -> None:
    array = (_Comparison * len(comparisons))(*comparisons)
    if library.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(comparisons), array) != 0:
        raise OSError(f"libseccomp refuses a rule for system call {number}")


def _export(library: Any, context: Any) -> bytes:
    descriptor = os.memfd_create("filter")
    try:
        if library.seccomp_export_bpf(context, descriptor) != 0:
            raise OSError("libseccomp cannot export its program")
        size = os.lseek(descriptor, 0, os.SEEK_END)
        return os.pread(descriptor, size, 0)
    finally:
        os.close(descriptor)
