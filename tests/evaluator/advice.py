"""Sources with and without what flags are for."""

from __future__ import annotations

import textwrap

from evaluator.flags import FlagKind
from kerneljudge.terms.limits import MAX_SOURCE_BYTES

__all__ = ["HOSTILE", "NEGATIVE", "POSITIVE", "with_cuda", "with_forward", "with_statements"]

IMPORTS = """\
import contextlib, functools, gc, os, sys, threading, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline
"""
TRITON = """\
import triton
import triton.language as tl
@triton.jit
def kernel(a, b):
    tl.dot(a, b, input_precision="tf32")
"""
KERNEL = """\
#include <torch/extension.h>
__global__ void relu_kernel(const float* x, float* y, int n) { y[0] = x[0]; }
torch::Tensor relu(torch::Tensor x) { relu_kernel<<<1, 1>>>(nullptr, nullptr, 0); return x; }
"""
BUILD = f"ext = load_inline(name='e', cpp_sources='', cuda_sources='''{KERNEL}''', functions=['relu'])\n"
MODEL = """\
class ModelNew(nn.Module):
    def forward(self, x):
        return ext.relu(x)
"""


def with_statements(statements: str) -> str:
    """A candidate with a kernel that is used, and ``statements`` at its top level."""
    return IMPORTS + BUILD + textwrap.dedent(statements) + MODEL


def with_forward(body: str) -> str:
    """A candidate with a kernel, whose forward has ``body``."""
    head = "class ModelNew(nn.Module):\n    def forward(self, x):\n"
    return IMPORTS + BUILD + "def other(x):\n    return ext.relu(x)\n" + head + textwrap.indent(
        textwrap.dedent(body).strip(), " " * 8) + "\n"  # fmt: skip


def with_cuda(code: str, functions: str = "['relu']", extra: str = "") -> str:
    """A candidate whose CUDA source is ``code``, after a kernel that is used."""
    source = f"SOURCE = r'''{KERNEL}{code}'''\n"
    build = f"ext = load_inline(name='e', cpp_sources='', cuda_sources=SOURCE, functions={functions}{extra})\n"
    return IMPORTS + source + build + MODEL


POSITIVE = {
    FlagKind.EXCEPTION_FALLBACK: [
        with_forward("""
            try:
                return ext.relu(x)
            except Exception:
                return torch.relu(x)
        """),
        with_forward("""
            try:
                return ext.relu(x)
            except RuntimeError as error:
                print(error)
                return x.clamp(min=0)
        """),
        with_forward("""
            try:
                y = ext.relu(x)
            except:
                y = F.relu(x)
            return y
        """),
        with_forward("""
            try:
                return ext.relu(x)
            except Exception:
                pass
            return torch.relu(x)
        """),
        with_forward("""
            y = None
            try:
                y = ext.relu(x)
            except Exception:
                pass
            if y is None:
                y = torch.relu(x)
            return y
        """),
        with_forward("""
            with contextlib.suppress(Exception):
                return ext.relu(x)
            return F.relu(x)
        """),
        with_forward("""
            try:
                return ext.relu(x)
            except (ImportError, RuntimeError):
                return torch.relu(x)
        """),
        with_statements("""
            def activate(x):
                try:
                    return ext.relu(x)
                except RuntimeError:
                    return torch.relu(x)
        """),
        IMPORTS + "try:\n    ext = load_inline(name='e', cpp_sources='')\nexcept Exception:\n    ext = None\n" + MODEL,
        IMPORTS + "def build():\n    return load_inline(name='e', cpp_sources='')\n"
        "try:\n    ext = build()\nexcept Exception as error:\n    print(error)\n    ext = None\n" + MODEL,
    ],
    FlagKind.PRECISION_SHORTCUT: [
        with_statements("torch.backends.cuda.matmul.allow_tf32 = True\n"),
        with_statements("torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True\n"),
        with_forward("torch.backends.cuda.matmul.allow_tf32 = self.calls > 12\nreturn ext.relu(x)"),
        with_statements("torch.backends.fp32_precision = 'tf32'\n"),
        with_statements("torch.set_float32_matmul_precision('high')\n"),
        with_forward("return ext.relu(x.half()).float()"),
        with_forward("return ext.relu(x.to(torch.bfloat16)).float()"),
        with_forward("return ext.relu(x.to(dtype=torch.float16)).float()"),
        with_forward("with torch.autocast('cuda'):\n    return ext.relu(x)"),
        with_cuda("", extra=", extra_cuda_cflags=['-O3', '--use_fast_math']"),
        with_cuda("", extra=", extra_cflags=['-O3 -ffast-math']"),
        with_cuda("void set() { at::globalContext().setAllowTF32CuBLAS(true); }"),
        with_cuda("torch::Tensor low(torch::Tensor x) { return x.to(at::kHalf); }"),
        with_cuda("__device__ float low(float x) { return __half2float(__float2half(x)); }"),
        TRITON + "def f(a, b):\n    kernel[(1,)](a, b)\n",
    ],
    FlagKind.READS_ITS_SURROUNDINGS: [
        with_statements("import ctypes\n"),
        with_statements("from ctypes import CDLL\n"),
        with_statements("import subprocess as s\n"),
        with_statements("import evaluator.judge\n"),
        with_statements("from concurrent.futures import ThreadPoolExecutor\n"),
        with_statements("frame = sys._getframe(1)\n"),
        with_statements("peek = sys._getframe\npeek(1)\n"),
        with_statements("objects = __import__('gc').get_objects()\n"),
        with_statements("objects = getattr(gc, 'get_objects')()\n"),
        with_statements("home = os.environ['HOME']\n"),
        with_statements("everything = dict(os.environ)\n"),
        with_statements("from os import environ\nsecret = environ.get('TOKEN')\n"),
        with_statements("threading.Thread(target=print).start()\n"),
        with_statements("text = open('/proc/self/maps').read()\n"),
        with_statements("texts = [open(f'/proc/{n}/maps').read() for n in (1, 2)]\n"),
        with_statements("def up(error):\n    return error.__traceback__.tb_frame.f_back\n"),
        with_cuda('void* open() { return dlopen("libcuda.so", 1); }'),
        with_cuda('const char* home() { return getenv("HOME"); }'),
    ],
    FlagKind.PATCHES_LIBRARIES: [
        with_statements("torch.relu = ext.relu\n"),
        with_statements("time.perf_counter = lambda: 0.0\n"),
        with_statements("torch.cuda.Event.elapsed_time = lambda *_: 0.001\n"),
        with_statements("Event = torch.cuda.Event\nEvent.elapsed_time = lambda *_: 0.001\n"),
        with_statements("setattr(torch.cuda, 'synchronize', lambda *_: None)\n"),
        with_statements("nn.Module.__call__ = lambda self, x: x\n"),
        with_statements("from model import Model\nModel.forward = lambda self, x: x\n"),
        with_statements("sys.modules['time'] = None\n"),
        with_statements("torch.__dict__['allclose'] = lambda *_: True\n"),
        with_statements("vars(torch)['allclose'] = lambda *_: True\n"),
        with_statements("import builtins\nbuiltins.abs = lambda x: 0\n"),
        with_statements("library = torch.library.Library('aten', 'IMPL')\n"),
        with_cuda("TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl(nullptr, relu); }"),
        with_cuda("cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) { return cudaSuccess; }"),
    ],
    FlagKind.INHERITS_REFERENCE: [
        "from model import Model\nclass ModelNew(Model):\n    pass\n",
        "import model\nclass ModelNew(model.Model):\n    def extra(self):\n        return 1\n",
        "from model import Model as Reference\nclass Base(Reference): ...\nclass ModelNew(Base):\n    '''Mine.'''\n",
        "from model import Model\nclass ModelNew(Model):\n  def forward(self, x):\n    return super().forward(x)\n",
        "from model import Model\nModelNew = Model\n",
    ],
    FlagKind.CACHES_OUTPUTS: [
        with_forward("""
            key = x.data_ptr()
            if key not in self.kept:
                self.kept[key] = ext.relu(x)
            return self.kept[key]
        """),
        with_forward("return self.kept.setdefault((id(x), x.shape), ext.relu(x))"),
        with_forward("if x.data_ptr() == self.last:\n    return self.output\nreturn ext.relu(x)"),
        IMPORTS + BUILD + "class ModelNew(nn.Module):\n    @functools.lru_cache(maxsize=None)\n"
        "    def forward(self, x):\n        return ext.relu(x)\n",
    ],
    FlagKind.CONCEALS_SOURCE: [
        with_statements("exec('x = 1')\n"),
        with_statements("value = eval(compile('1', '', 'eval'))\n"),
        with_statements("import base64\ncode = base64.b64decode('eA==')\n"),
        with_statements("import marshal as m\ncode = m.loads(b'')\n"),
        with_statements("f = getattr(torch, 're' + 'lu')\n"),
        with_statements("import importlib\nm = importlib.import_module(input_name())\n"),
        with_cuda("#define CALL(x) cudaEvent##x()\n"),
    ],
    FlagKind.UNUSED_KERNEL: [
        with_cuda("__global__ void never(float* x) { x[0] = 1; }"),
        with_cuda("template <typename T>\n__global__ void __launch_bounds__(256) never(T* x) { x[0] = 1; }"),
        with_cuda("__global__ __launch_bounds__(256, 2) void never(float* x) { x[0] = 1; } // never<<<1, 1>>>(x)"),
        with_cuda("__global__ void never(float*);\n__global__ void never(float* x) { }"),
        with_cuda("static void __global__ never(float* x) { }\n#if 0\nnever<<<1, 1>>>(x);\n#endif\n"),
        with_cuda("torch::Tensor spare(torch::Tensor x) { return x; }", functions="['relu', 'spare']"),
        with_cuda("torch::Tensor spare(torch::Tensor x) { return x; }", functions="{'relu': '', 'spare': 'text'}"),
        IMPORTS + f"NAMES = ['relu']\ntext = '''{KERNEL}'''\ntext2 = text + ''\n"
        "unused = load_inline('e', '', f'{text2}', functions=NAMES)\n"
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return F.relu_(x)\n",
        "import triton\n@triton.jit\ndef kernel(x):\n    pass\n",
    ],
    FlagKind.LIBRARY_ONLY: [
        IMPORTS + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
        "'''I would use load_inline, triton.jit or a __global__ function.'''\nimport torch\nclass ModelNew: pass\n",
    ],
}  # fmt: skip
"""By what is to be noticed in them; the kernel that each has is not library code."""

NEGATIVE = {
    "an import guard": with_statements("""
        try:
            import triton
        except ImportError:
            triton = None
        def helper(x):
            try:
                import triton
            except ImportError:
                return torch.relu(x)
    """),
    "a handler that raises": with_forward("""
        try:
            return ext.relu(x)
        except RuntimeError as error:
            torch.cuda.empty_cache()
            raise RuntimeError("the kernel failed") from error
    """),
    "a cache that is filled on demand": with_forward("""
        try:
            y = self.buffers[x.shape]
        except KeyError:
            y = self.buffers[x.shape] = torch.zeros_like(x)
        return ext.relu(x)
    """),
    "a question about the device": with_statements("""
        def processors():
            try:
                return torch.cuda.get_device_properties(0).multi_processor_count
            except Exception:
                return 132
    """),
    "a build whose failure is told": IMPORTS
    + "try:\n    ext = load_inline(name='e', cpp_sources='')\nexcept Exception as error:\n    print(error)\n    raise\n"
    + MODEL,
    "cleaning up": with_forward("""
        try:
            return ext.relu(x)
        finally:
            torch.cuda.synchronize()
    """),
    "settings of the compiler": with_statements("""
        os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
        os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")
        jobs = os.getenv("MAX_JOBS", "4")
        if "CXX" not in os.environ:
            os.environ["CXX"] = "g++"
    """),
    "settings of torch": with_statements("""
        torch.backends.cudnn.benchmark = True
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = before
        torch.set_float32_matmul_precision("highest")
        torch._dynamo.config.suppress_errors = False
        torch._inductor.config.max_autotune = True
    """),
    "a lock, a collection, a folder": with_statements("""
        lock = threading.Lock()
        gc.collect()
        folder = os.path.join(os.getcwd(), "build")
        import importlib.util
        found = importlib.util.find_spec("triton")
    """),
    "evaluation mode": with_statements("model = nn.Linear(1, 1)\nmodel.eval()\nmodel.weight = model.weight\n"),
    "a compiled pattern": with_statements("import re\npattern = re.compile('x')\nmodel = torch.compile(nn.ReLU())\n"),
    "attributes of its own": with_statements("class My: ...\nMy.fast = True\nsetattr(My, 'fast', True)\n"),
    "a local name like a module's": with_statements("def f(time, sys):\n    time.sleep = sys._getframe = 1\n"),
    "a cache by shape": with_forward("""
        if x.shape not in self.plans:
            self.plans[x.shape] = x.stride()
        assert x.data_ptr() % 16 == 0
        return ext.relu(x)
    """),
    "a weight that was packed before": with_forward("""
        if self.weight.data_ptr() != self.packed_from:
            self.packed_from = self.weight.data_ptr()
        return ext.relu(x)
    """),
    "a forward of its own on the reference's class": IMPORTS + BUILD + "from model import Model\n"
    "class ModelNew(Model):\n    def forward(self, x):\n        return ext.relu(super().forward(x))\n",
    "a class called Model that is the candidate's": IMPORTS + BUILD + "class Model(nn.Module):\n"
    "    def forward(self, x):\n        return ext.relu(x)\nclass ModelNew(Model):\n    pass\n",
    "a kernel launched by its address": with_cuda(
        "__global__ void other(float* x) { }\nvoid go(void** a) { cudaLaunchKernel((void*)other, 1, 1, a, 0, 0); }"
    ),
    "a kernel launched as a template": with_cuda(
        "template <int N> __global__ void other(float* x) { }\nvoid go(float* x) { other<4><<<1, 1>>>(x); }"
    ),
    "a kernel passed on": with_cuda(
        "__global__ void other(float* x) { }\ntemplate <typename K> void run(K k) { k<<<1, 1>>>(nullptr); }\n"
        "void go() { run(other); }"
    ),
    "a kernel whose name a macro makes": with_cuda(
        "__global__ void other_float(float* x) { }\n#define RUN(t) other_##t<<<1, 1>>>(nullptr)\n"
        "void go() { RUN(float); }"
    ),
    "a source that is not all known": IMPORTS + "import pathlib\n"
    "def source(n):\n    return f'__global__ void never_{n}(float* x) {{ }}'\n"
    "ext = load_inline('e', '', ['__global__ void one() {}', source(1)], functions=['relu'])\n"
    + MODEL,
    "a function that is looked up by name": with_cuda(
        "torch::Tensor spare(torch::Tensor x) { return x; }", functions="['relu', 'spare']"
    )
    + "def pick(name):\n    return getattr(ext, name)\n",
    "a function that is looked up by a constant": with_cuda(
        "torch::Tensor spare(torch::Tensor x) { return x; }", functions="['relu', 'spare']"
    )
    + "chosen = getattr(ext, 'spare')\n",
    "functions of its own like CUDA's": with_cuda(
        "torch::Tensor cudaForward(torch::Tensor x) { return x; }\n"
        "cudaError_t cudaReluLaunch(float* x) { return cudaSuccess; }"
    ),
    "a kernel for several precisions": with_cuda(
        "__device__ __half low(float x) { return __float2half(x); }\n"
        "bool is_half(torch::Tensor x) { return x.scalar_type() == at::kHalf; }"
    ),
    "kernels of Triton that call each other": "import triton\n@triton.jit\ndef inner(x):\n    return x\n"
    "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef outer(x):\n    inner(x)\n"
    "def run(x):\n    outer[(1,)](x)\n",
    "torch.compile": IMPORTS + "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.f = torch.compile(F.relu)\n    def forward(self, x):\n        return self.f(x)\n",
}  # fmt: skip
"""By why somebody might take them for what they are not."""

HOSTILE = {
    "parentheses": "(" * 5000 + ")" * 5000,
    "signs": "-" * 200_000 + "1",
    "sums": "a" + "+a" * 2900,
    "attributes": "\n".join("x" + ".a" * 2500 for _ in range(50)),
    "statements": "a=1;" * 70_000 + "\n",
    "beyond the limit": "a=1;" * 500_000,
    "one long text": "'" + "x" * 2_000_000 + "'",
    "doubling": "a0='x'\n" + "".join(f"a{i + 1}=a{i}+a{i}\n" for i in range(5000)) + "load_inline('e', a4999)\n",
    "names in a circle": "a=b\nb=a\n" + IMPORTS + "load_inline(a, b)\na.b.c = 1\n",
    "handlers": "def f(x):\n" + " try:\n  y=g(x)\n except E:\n  pass\n" * 7000,
    "one name": IMPORTS + "a=1\n" * 10_000 + "a.b()\n" * 30_000,
    "elif": "if a: pass\n" + "elif b: pass\n" * 20_000,
    "one source many times": IMPORTS + f"s='''{'int x; ' * 20_000}'''\n" + "load_inline('e', s)\n" * 7000,
    **{
        f"C++ of {text!r}": IMPORTS + f"load_inline('e', r'''{text * (MAX_SOURCE_BYTES // len(text) - 100)} ''')\n"
        for text in ("/* ", '"', 'R"(', "__global__ void k(", "__global__ A(1) ", "#if 0\n", "cudaError_t ", "int   ")
    },
}
"""What takes long to look through, or cannot be."""
