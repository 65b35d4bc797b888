"""Breaks of rules: calls and kernels that are found however they are written, and others that only look so."""

from __future__ import annotations

import contextlib
import textwrap
import time

import pytest

from evaluator.candidates.candidate import InvalidSource, parse_quietly
from evaluator.source_flags.extensions import find_extensions
from evaluator.source_flags.module import Module
from evaluator.source_rules.check import MAX_BREAKS, Break, find_breaks
from evaluator.source_rules.languages import OTHER, kernel_languages
from kerneljudge.terms.operator_names import OPERATORS
from kerneljudge.terms.rules import NO_RULES, Rules
from tests.corpus import Case, known_problems, load_case, load_cases
from tests.evaluator.advice import HOSTILE

PROBLEMS = known_problems()
HONEST = [case for case in load_cases() if case.kind == "honest"]
REFERENCE = PROBLEMS["linear_relu_divide"].source
PRODUCTS = Rules(forbidden_operators=("linear", "matmul", "softmax"))
EVERYTHING = Rules(("cpp", "cuda", "torch", "triton"), tuple(sorted(OPERATORS)), no_lower_precision=True)

IMPORTS = """\
import functools, operator
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.utils.cpp_extension import load, load_inline
"""


def breaks(source: str, rules: Rules = PRODUCTS, precision: str = "float32") -> list[Break]:
    return find_breaks(source, rules, least_precision=precision, reference=REFERENCE)


def lines_of(source: str, rules: Rules = PRODUCTS) -> list[str]:
    """The lines with a break, as written."""
    return [source.splitlines()[each.line - 1].strip() for each in breaks(source, rules)]


def forward(body: str, before: str = "", init: str = "pass") -> str:
    head = f"class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
    inner = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"{IMPORTS}{textwrap.dedent(before)}{head}    def forward(self, x, w):\n{inner}\n"


def cxx(code: str, body: str = "return ext.run(x, w)", arguments: str = "functions=['run']") -> str:
    return forward(body, f"SOURCE = r'''\n{code}\n'''\next = load_inline('ext', SOURCE, {arguments})\n")


CALLS = {
    "function": forward("return torch.matmul(x, w)"),
    "functional": forward("return F.linear(x, w)"),
    "alias of an import": forward("return m(x, w)", "from torch import matmul as m\n"),
    "alias of a module": forward("return G.linear(x, w)", "G = torch.nn.functional\n"),
    "alias of a function": forward("product = torch.mm\nreturn product(x, w)"),
    "module as an attribute": forward("return self.f.linear(x, w)", init="self.f = torch.nn.functional"),
    "function as an attribute": forward("return self.f(x, w)", init="self.f = torch.bmm"),
    "everything imported": forward("return linear(x, w)", "from torch.nn.functional import *\n"),
    "method": forward("return x.matmul(w)"),
    "method in place": forward("return x.addmm_(x, w)"),
    "method by an alias": forward("product = x.mm\nreturn product(w)"),
    "method of the class": forward("return torch.Tensor.matmul(x, w)"),
    "operator": forward("return x @ w"),
    "operator in place": forward("x @= w\nreturn x"),
    "dunder": forward("return x.__matmul__(w)"),
    "operator module": forward("return operator.matmul(x, w)"),
    "method caller": forward("return operator.methodcaller('matmul', w)(x)"),
    "getattr with a constant": forward("return getattr(torch, 'mat' + 'mul')(x, w)"),
    "getattr of a tensor": forward("return getattr(x, 'softmax')(-1)"),
    "table of the module": forward("return torch.__dict__['matmul'](x, w)"),
    "vars": forward("return vars(F)['linear'](x, w)"),
    "loaded modules": forward("return sys.modules['torch.nn.functional'].linear(x, w)", "import sys\n"),
    "module by its name": forward("return importlib.import_module('torch').mm(x, w)", "import importlib\n"),
    "dispatched operator": forward("return torch.ops.aten.mm.default(x, w)"),
    "private function": forward("return torch._C._nn.linear(x, w)"),
    "private softmax": forward("return torch._softmax(x, -1, False)"),
    "einsum": forward("return torch.einsum('ij,jk->ik', x, w)"),
    "attention": forward("return F.scaled_dot_product_attention(x, w, w)"),
    "partial": forward("return functools.partial(torch.matmul, x)(w)"),
    "default argument": forward("return go(x, w)", "def go(x, w, f=torch.matmul):\n    return f(x, w)\n"),
    "list": forward("return [torch.matmul][0](x, w)"),
    "autograd": forward(
        "return Product.apply(x, w)",
        """
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                return x.mm(w)
        """,
    ),
    "layer": forward("return self.layer(x)", init="self.layer = nn.Linear(4, 4)"),
    "layer by its forward": forward("return self.layer.forward(x)", init="self.layer = nn.Linear(4, 4)"),
    "forward of its class": forward("return nn.Linear.forward(self.layer, x)", init="self.layer = nn.Linear(4, 4)"),
    "layer at once": forward("return nn.Softmax(dim=-1)(x)"),
    "layer under another name": forward("f = self.layer\nreturn f(x)", init="self.layer = nn.Linear(4, 4)"),
    "layer in a sequence": forward("return self.all(x)", init="self.all = nn.Sequential(nn.ReLU(), nn.Softmax(-1))"),
    "layer in a list": forward(
        "for each in self.all:\n    x = each(x)\nreturn x", init="self.all = nn.ModuleList([nn.Linear(4, 4)])"
    ),
    "layer appended": forward("return self.all[0](x)", init="self.all = []; self.all.append(nn.Linear(4, 4))"),
    "layer by setattr": forward("return self.layer(x)", init="setattr(self, 'layer', nn.Linear(4, 4))"),
    "layer handed to a function": forward(
        "return run(self.layer, x)", "def run(f, x):\n    return f(x)\n", "self.layer = nn.Linear(4, 4)"
    ),
    "layer that is compiled": forward("return self.f(x)", init="self.f = torch.compile(nn.Linear(4, 4))"),
    "layer of a class of its own": forward(
        "return self.layer(x)", "class Mine(nn.Linear):\n    pass\n", "self.layer = Mine(4, 4)"
    ),
    "forward above": forward(
        "return self.layer(x)",
        """
        class Mine(nn.Linear):
            def forward(self, x):
                return super().forward(x) + 1
        """,
        "self.layer = Mine(4, 4)",
    ),
    "layer of an object of its own": forward(
        "return self.block.fc(x)",
        "class Block:\n    def __init__(self):\n        self.fc = nn.Linear(4, 4)\n",
        "self.block = Block()",
    ),
    "layer that a class above holds": f"{IMPORTS}class Base(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4, 4)\n"
    "class ModelNew(Base):\n    def forward(self, x):\n        return self.fc(x)\n",
    "layer of an unknown object": forward(
        "return run(self, x)", "def run(model, x):\n    return model.fc(x)\n", "self.fc = nn.Linear(4, 4)"
    ),
    "layers in pairs": forward(
        "for i, (name, layer) in enumerate(zip(self.names, self.layers)):\n    x = layer(x)\nreturn x",
        init="self.layers = nn.ModuleList([nn.Linear(4, 4)]); self.names = []",
    ),
    "tensor handed to a function": forward(
        "return run(ext, x) + run(x, x)",
        "ext = load_inline('ext', '', functions=['f'])\ndef run(m, x):\n    return m.softmax(x)\n",
    ),
    "tensor handed to a function by a map": forward(
        "return run(ext, x) + list(map(run, [x], [x]))[0]",
        "ext = load_inline('ext', '', functions=['f'])\ndef run(m, x):\n    return m.softmax(x)\n",
    ),
    "tensor in a table": forward(
        "t = {'m': ext}\nt['x'] = x\nreturn t['x'].softmax(-1)", "ext = load_inline('ext', '', functions=['f'])\n"
    ),
    "tensor put into a table elsewhere": forward(
        "t = {'m': ext}\nt.update(x=x)\nreturn t['x'].softmax(-1)", "ext = load_inline('ext', '', functions=['f'])\n"
    ),
    "tensor out of a method": forward(
        "return Box(x).get().softmax(-1)",
        "class Box:\n    def __init__(self, x):\n        self.x = x\n    def get(self):\n        return self.x\n",
    ),
    "tensor as a property": forward(
        "return Box(x).y.softmax(-1)",
        """
        class Box:
            def __init__(self, x):
                self.x = x
            @property
            def y(self):
                return self.x
        """,
    ),
    "tensor out of a function": forward(
        "return go(x).softmax(-1)", "def go(x):\n    if x is None:\n        return None\n    return x\n"
    ),
    "layer out of a function": forward(
        "return self.f(x)",
        "def make(n):\n    return nn.Sequential(nn.Linear(n, n), nn.ReLU())\n",
        "self.f = nn.Sequential(make(3), make(4))",
    ),
    "layer out of a function within": forward(
        "return self.f(x)",
        init="\n        def make(n):\n            return nn.Linear(n, n)\n        self.f = nn.Sequential(make(3))",
    ),
    "layer out of a method": f"{IMPORTS}class ModelNew(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.f = self.made(3)\n"
    "    def made(self, n):\n        layers = []\n        layers.append(nn.Linear(n, n))\n"
    "        return nn.Sequential(*layers)\n"
    "    def forward(self, x):\n        return self.f(x)\n",
    "layer of a class in a table": forward(
        "return self.f(x)", "ACT = {'relu': nn.ReLU, 'soft': nn.Softmax}\n", "self.f = ACT['soft'](-1)"
    ),
    "layer of a class that is handed on": forward(
        "return self.f(x)", "def make(kind):\n    return kind(4, 4)\n", "self.f = make(nn.Linear)"
    ),
    "layer out of a lambda": forward("return self.f(x)", "make = lambda: nn.Linear(3, 3)\n", "self.f = make()"),
    "half of a layer's forward": forward(
        "return self.f._conv_forward(x, w, None)",
        "class Mine(nn.Linear):\n    pass\n",
        "self.f = Mine(4, 4)",
    ),
    "attention layer": forward("return self.a(x, x, x)", init="self.a = nn.MultiheadAttention(4, 4)"),
    "inherited reference": f"{IMPORTS}from model import Model\nclass ModelNew(Model):\n    pass\n",
    "reference under another name": "import model\nModelNew = model.Model\n",
    "forward of the reference": f"{IMPORTS}from model import Model\n"
    "class ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x)\n",
    "layer of the reference": f"{IMPORTS}from model import Model\n"
    "class ModelNew(Model):\n    def forward(self, x):\n        return self.linear(x)\n",
    "reference within": forward("return self.f(x)", "import model\n", "self.f = model.Model(4, 4, 2)"),
    "class attribute": forward(
        "return Mine().go(x, w)",
        "class Mine:\n    f = torch.nn.functional\n    def go(self, x, w):\n        return self.f.linear(x, w)\n",
    ),
    "method of its type": forward("return type(x).matmul(x, w)"),
    "method of a copy": forward("return copy.copy(x).mm(w)", "import copy\n"),
    "method of another self": forward("return go(x, w)", "def go(self, w):\n    return self.mm(w)\n"),
    "method of a static self": forward(
        "return Mine.go(x, w)", "class Mine:\n    @staticmethod\n    def go(self, w):\n        return self.mm(w)\n"
    ),
    "method of a subclass of tensors": forward(
        "return x.as_subclass(Mine).go(w)",
        "class Mine(torch.Tensor):\n    def go(self, w):\n        return self.mm(w)\n",
    ),
    "layer among the children": forward(
        "for each in self.children():\n    x = each(x)\nreturn x", init="self.layer = nn.Linear(4, 4)"
    ),
    "layer by its name": forward("return self.get_submodule('layer')(x)", init="self.layer = nn.Linear(4, 4)"),
    "layer out of the table": forward("return self._modules['layer'](x)", init="self.layer = nn.Linear(4, 4)"),
    "layer by a computed name": forward("return getattr(self, f'layer{1}')(x)", init="self.layer1 = nn.Linear(4, 4)"),
    "sequence that is inherited": f"{IMPORTS}class ModelNew(nn.Sequential):\n"
    "    def __init__(self):\n        super().__init__(nn.Linear(4, 4), nn.ReLU())\n",
    "block for a program that is run": "__name__ = '__main__'\n"
    + forward("return x")
    + "if __name__ == '__main__':\n    torch.matmul(a, b)\n",
    "helper that is called": forward("return helper(x, w)", "def helper(x, w):\n    return x @ w\n"),
    "method in a class that is used": forward(
        "return Mine().run(x, w)", "class Mine:\n    def run(s, x, w):\n        return x @ w\n"
    ),
    "C++ function": cxx("torch::Tensor run(torch::Tensor x, torch::Tensor w) { return at::mm(x, w); }"),
    "C++ function by way of _ops": cxx("auto run(at::Tensor x, at::Tensor w) { return at::_ops::mm::call(x, w); }"),
    "C++ method": cxx("torch::Tensor run(torch::Tensor x, torch::Tensor w) { return x.matmul(w); }"),
    "C++ functional": cxx("auto run(at::Tensor x, at::Tensor w) { return torch::nn::functional::linear(x, w); }"),
    "C++ without a namespace": cxx("using namespace at;\nTensor run(Tensor x, Tensor w) { return matmul(x, w); }"),
    "CUDA library": cxx("void run(float* x, float* w) { cublasSgemm(h, n, n, 4, 4, 4, &a, x, 4, w, 4, &b, y, 4); }"),
    "C++ by another name of a namespace": cxx(
        "namespace F = torch::nn::functional;\nauto run(at::Tensor x, at::Tensor w) { return F::softmax(x, 1); }"
    ),
    "C++ beside device code": cxx(
        "using namespace at;\n__global__ void k(float* x) { x[0] = max(x[0], 0); }\n"
        "Tensor run(Tensor x, Tensor w) { k<<<1, 1>>>(p); return matmul(x, w); }"
    ),
    "C++ that is marked as device code": cxx(
        "using namespace at;\n__host__ __device__ Tensor run(Tensor x, Tensor w) { return matmul(x, w); }"
    ),
    "softmax of cuDNN": cxx("void run() { cudnnSoftmaxForward(h, a, m, &one, d, x, &zero, d, y); }"),
    "C++ in parts": forward(
        "return ext.run(x, w)",
        "PART = 'at::Tensor run(at::Tensor x, at::Tensor w) { return at::mm(x, w); }'\n"
        "ext = load_inline('ext', PART.replace('RUN', NAME), functions=['run'])\n",
    ),
}  # fmt: skip

LOOKS_ALIKE = {
    "comment": forward("# torch.matmul(x, w), x @ w\nreturn x"),
    "text": forward("note = 'torch.matmul(x, w); F.linear'\nreturn x"),
    "docstring": forward('"""F.linear and x @ w, at::mm(x, w)."""\nreturn x'),
    "weights of a layer": forward(
        "return k(x, self.layer.weight)", "from mine import k\n", "self.layer = nn.Linear(4, 4)"
    ),
    "weights in a list": forward(
        "for each in self.all:\n    x = k(x, each.weight, each.bias)\nreturn x",
        "from mine import k\n",
        "self.all = nn.ModuleList([nn.Linear(4, 4)])",
    ),
    "weights in a helper": forward(
        "return run(self.layer, x)",
        "from mine import k\ndef run(layer, x):\n    return k(x, layer.weight.t())\n",
        "self.layer = nn.Linear(4, 4)",
    ),
    "initialised layer": forward("return x", init="self.layer = nn.Linear(4, 4); nn.init.zeros_(self.layer.weight)"),
    "settings of products": forward("torch.backends.cuda.matmul.allow_tf32 = False\nreturn x"),
    "precision of products": forward("torch.set_float32_matmul_precision('highest')\nreturn x"),
    "method of its own": forward(
        "return Mine().go(x, w)",
        """
        class Mine:
            def go(self, x, w):
                return self.matmul(x, w)

            def matmul(self, x, w):
                return x * w
        """,
    ),
    "function of its own": forward("return softmax(x)", "def softmax(x):\n    return x / 2\n"),
    "extension's function": cxx("at::Tensor matmul(at::Tensor x, at::Tensor w);", "return ext.matmul(x, w)"),
    "extension as an attribute": forward(
        "return self.ext.softmax(x)", "SOURCE = ''\n", "self.ext = load_inline('ext', SOURCE, functions=['softmax'])"
    ),
    "extension out of a function": forward(
        "return ext().softmax(x)",
        "SOURCE = ''\ndef ext():\n    return load_inline('ext', SOURCE, functions=['softmax'])\n",
    ),
    "extension out of two functions": forward(
        "return get().softmax(x)",
        """
        _m = None
        def _build():
            return load_inline('ext', '', functions=['softmax'])
        def get():
            global _m
            if _m is None:
                _m = _build()
            return _m
        """,
    ),
    "extension in a table": forward(
        "if 'm' not in _C:\n    build()\nreturn _C['m'].softmax(x) + _C.get('m').mm(x)",
        "_C = {}\ndef build():\n    _C['m'] = load_inline('ext', '', functions=['softmax'])\n",
    ),
    "extension of a class": forward(
        "return Ext.get().softmax(x)",
        """
        class Ext:
            mod = None
            @classmethod
            def get(cls):
                if cls.mod is None:
                    cls.mod = build()
                return cls.mod
        def build():
            return load_inline('ext', '', functions=['softmax'])
        """,
    ),
    "extension as a property": forward(
        "return self.ops.ext.softmax(x) + self.ops.ext.fc(x)",
        """
        def build():
            return load_inline('ext', '', functions=['softmax', 'fc'])
        class Ops:
            _ext = None
            @property
            def ext(self):
                self._ext = self._ext or build()
                return self._ext
        """,
        "self.ops = Ops(); self.fc = nn.Linear(4, 4)",
    ),
    "extension handed to autograd": forward(
        "return Fn.apply(x, ext)",
        """
        ext = load_inline('ext', '', functions=['softmax'])
        class Fn(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, m):
                return m.softmax(x)
        """,
    ),
    "extension handed to its own object": forward(
        "return self.block(x)",
        """
        ext = load_inline('ext', '', functions=['softmax'])
        class Block(nn.Module):
            def __init__(self, ext):
                super().__init__()
                self.ext = ext
            def forward(self, x):
                return self.ext.softmax(x)
        """,
        "self.block = Block(ext)",
    ),
    "type of a module in an annotation": forward(
        "e: ModuleType | None = get()\nreturn x if isinstance(e, (types.FunctionType, ModuleType)) else w",
        "import types\nfrom types import ModuleType\nfrom mine import k\n"
        "def get(old: ModuleType = None) -> Optional[ModuleType]:\n    return k\n",
    ),
    "setting of the compiler": forward("torch._C._jit_set_profiling_mode(False)\nreturn x"),
    "weights of a layer out of a function": forward(
        "return k(x, self.f.weight, make(3).bias)",
        "from mine import k\ndef make(n):\n    return nn.Linear(n, n)\nKINDS = {'linear': nn.Linear}\n",
        "self.f = make(3); self.g = KINDS['linear'](4, 4)",
    ),
    "operator of its own library": forward("return torch.ops.mine.matmul(x, w)"),
    "object of its own class": forward(
        "return Kernels().matmul(x, w)", "class Kernels:\n    def matmul(self, x, w):\n        return x * w\n"
    ),
    "product in Triton": forward(
        "kernel[(1,)](x)\nreturn x",
        """
        @triton.jit
        def kernel(x):
            y = tl.dot(tl.load(x), tl.load(x))
            tl.store(x, y.softmax())
        """,
    ),
    "other operator": forward("return F.gelu(x) + torch.log_softmax(x, -1) * torch.outer(x, w)"),
    "decorator": forward("return mine(x)", "from functools import cache\n@cache\ndef mine(x):\n    return x\n"),
    "copy of the reference": IMPORTS
    + "class Model(nn.Module):\n    def forward(self, x, w):\n        return torch.matmul(x, w)\n"
    + "class ModelNew(nn.Module):\n    def forward(self, x, w):\n        return x\n",
    "block for a program": forward("return x") + "if __name__ == '__main__':\n    print(torch.matmul(a, b))\n",
    "settings in a namespace": forward("return x * globals()['SCALE']", "SCALE = 2\n"),
    "initialised layers": forward(
        "for each in self.modules():\n    nn.init.zeros_(each.weight)\nreturn x", init="self.layer = nn.Linear(4, 4)"
    ),
    "weight by a computed name": forward(
        "return k(x, getattr(self, f'layer{i}').weight)", "from mine import i, k\n", "self.layer1 = nn.Linear(4, 4)"
    ),
    "array of NumPy": forward("return x * np.ones(4).max()", "import numpy as np\n"),
    "type of a layer": forward("return x if isinstance(self.layer, nn.Linear) else w", init="self.layer = None"),
    "comparison": forward("return x if x is not torch.matmul else w"),
    "own forward over the reference": f"{IMPORTS}from model import Model\nfrom mine import k\n"
    "class ModelNew(Model):\n    def forward(self, x):\n        return k(x, self.linear.weight)\n",
    "inputs of the reference": forward("return x", "from model import get_inputs\n"),
    "extension's function of a layer's name": forward(
        "return ext.linear(x, self.linear.weight)",
        "ext = load_inline('ext', '', functions=['linear'])\n",
        "self.linear = nn.Linear(4, 4)",
    ),
    "extension as an attribute beside a layer": forward(
        "return self.ops.fc(x, self.fc.weight)",
        "ext = load_inline('ext', '', functions=['fc'])\n",
        "self.fc = nn.Linear(4, 4); self.ops = ext",
    ),
    "method of its own object of a layer's name": forward(
        "return self.ops.fc(x)",
        "class Ops:\n    def fc(self, x):\n        return x\n",
        "self.fc = nn.Linear(4, 4); self.ops = Ops()",
    ),
    "method of a tensor of a layer's name": forward(
        "return x.norm(dim=1) + x.squeeze(1)", init="self.norm = nn.Linear(4, 4); self.squeeze = nn.Softmax(-1)"
    ),
    "weights of the same name in another class": forward(
        "return self.fc(x)",
        """
        class Mine(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 4)

            def forward(self, x):
                return k(x, self.fc.weight)
        """,
        "self.fc = Mine()",
    ),
    "own kernels beside layers": forward(
        "for i, (layer, act) in enumerate(zip(self.layers, self.acts)):\n    x = act(x, layer.weight)\nreturn x",
        "from mine import k\n",
        "self.layers = nn.ModuleList([nn.Linear(4, 4)]); self.acts = [k]",
    ),
    "C++ comment": cxx("at::Tensor run(at::Tensor x, at::Tensor w) { return x; /* at::mm(x, w) */ }  // x.mm(w)"),
    "C++ text": cxx('at::Tensor run(at::Tensor x, at::Tensor w) { TORCH_CHECK(x.dim() == 2, "at::mm(x, w)"); }'),
    "C++ function of its own": cxx(
        "using namespace torch;\nTensor softmax(Tensor x) { return x; }\nTensor run(Tensor x) { return softmax(x); }"
    ),
    "device code": cxx(
        "using namespace at;\n"
        "template <typename T> __device__ __forceinline__ T go(T x) { if (x) { return softmax(x); } }\n"
        "__global__ void __launch_bounds__(256) k(V v, float* x) { x[0] = v.matmul(x) + linear(x[1]); }\n"
        "Tensor run(Tensor x, Tensor w) { k<<<1, 256>>>(p); return x; }"
    ),
    "descriptor of cuDNN": cxx("void run() { cudnnSoftmaxMode_t m; cudnnGetConvolutionForwardAlgorithm_v7(h); }"),
    "C++ method of its own": cxx(
        "struct V { float matmul(V w) const { return 0; } };\nfloat run(V x, V w) { return x.matmul(w); }"
    ),
    "C++ name that goes on": cxx("at::Tensor run(at::Tensor x, at::Tensor w) { return at::mm_like(x); }"),
}  # fmt: skip

HIDDEN = {
    "exec": forward("exec('y = torch.mat' + 'mul(x, w)')\nreturn x"),
    "eval": forward("return eval('torch.mm')(x, w)"),
    "module made by its type": forward("return types.ModuleType('m')", "import types\n"),
    "module made by an alias of its type": forward("make = types.ModuleType\nreturn make('m')", "import types\n"),
    "function made by its type": forward("return [types.FunctionType][0](x, {})()", "import types\n"),
    "computed name": forward("return getattr(torch, name())(x, w)", "from mine import name\n"),
    "computed name in a table": forward("return torch.__dict__[name()](x, w)", "from mine import name\n"),
    "computed operator": forward("return getattr(torch.ops.aten, ''.join(['m', 'm']))(x, w)"),
    "computed module": forward("return importlib.import_module(''.join('torch')).mm(x, w)", "import importlib\n"),
    "torch handed on": forward("return run(torch, x, w)", "from mine import run\n"),
    "functions in a list": forward("return [F][0].linear(x, w)"),
    "two meanings of a name": forward("lib = F\nlib = x\nreturn lib.linear(x, w)"),
    "dispatcher in Python": forward("return torch._C._jit_get_operation('aten::mm')[0](x, w)"),
    "dispatcher in C++": cxx("auto f = c10::Dispatcher::singleton().findSchemaOrThrow(name, \"\");"),
    "Python in C++": cxx('auto run(py::object x) { return py::module_::import("torch").attr("mm")(x); }'),
    "namespace": forward("return globals()['F'].linear(x, w)"),
    "source out of a pickle": forward("return pickle.loads(TEXT)(x)", "import pickle\nTEXT = b''\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_forbidden_operator_is_found_however_it_is_written(name: str) -> None:
    found = breaks(CALLS[name])
    assert {each.rule for each in found} == {"forbidden_operators"}
    assert any("calls" in each.message for each in found), found
    assert breaks(CALLS[name], Rules(forbidden_operators=("conv3d", "kl_div"))) == []


@pytest.mark.parametrize("name", LOOKS_ALIKE)
def test_a_call_of_something_else_breaks_no_rule(name: str) -> None:
    assert breaks(LOOKS_ALIKE[name]) == []


@pytest.mark.parametrize("name", HIDDEN)
def test_a_source_that_hides_its_calls_cannot_be_read(name: str) -> None:
    assert any(each.message.startswith("cannot be read") for each in breaks(HIDDEN[name]))


def test_a_break_is_at_its_line() -> None:
    source = forward("y = x + 1\nz = torch.mm(y, w)\nreturn z.softmax(-1)")
    assert lines_of(source) == ["z = torch.mm(y, w)", "return z.softmax(-1)"]
    cpp = cxx("// at::mm(x, w)\nat::Tensor run(at::Tensor x, at::Tensor w) {\n  return at::mm(x, w);\n}")
    assert lines_of(cpp) == ["return at::mm(x, w);"]


def test_the_names_of_operators_are_told_apart() -> None:
    source = forward("return torch.bmm(F.softmax(x, -1), w)")
    assert [each.message for each in breaks(source)] == [
        "torch.bmm calls matmul",
        "torch.nn.functional.softmax calls softmax",
    ]
    assert breaks(source, Rules(forbidden_operators=("mm", "linear", "log_softmax"))) == []


def test_a_list_is_sorted_without_the_operator_of_tensors() -> None:
    source = forward("s = sorted(x.shape)\ns.sort()\nt = [i for i in s]\nt.sort()\nreturn x.sort()")
    assert lines_of(source, Rules(forbidden_operators=("sort",))) == ["return x.sort()"]


def test_no_more_breaks_than_a_reader_reads_are_kept() -> None:
    assert len(breaks(forward("x = x @ w\n" * 100 + "return x"))) == MAX_BREAKS


def test_without_rules_nothing_is_read() -> None:
    assert breaks(CALLS["function"], NO_RULES) == []


KERNEL = "@triton.jit\ndef kernel(x):\n    tl.store(x, 0)\n"
LANGUAGES = {
    "torch alone": (forward("return torch.relu(x)"), {"torch"}),
    "compiled by torch": (forward("return torch.compile(torch.relu)(x)"), {"torch"}),
    "Triton": (forward("kernel[(1,)](x)\nreturn x", KERNEL), {"triton"}),
    "Triton that nothing launches": (forward("return torch.relu(x)", KERNEL), {"torch"}),
    "Triton, imported alone": (forward("return x * tl.constexpr(2)"), {"torch"}),
    "C++": (cxx(""), {"cpp"}),
    "C++ that nothing uses": (cxx("", "return torch.relu(x)"), {"torch"}),
    "C++ with an empty CUDA source": (cxx("", arguments="'', functions=['run']"), {"cpp"}),
    "CUDA": (cxx("", arguments="cuda_sources=SOURCE, functions=['run']"), {"cuda"}),
    "CUDA in a list": (cxx("", arguments="[SOURCE], functions=['run']"), {"cuda"}),
    "CUDA in a comment": (forward("# load_inline(cuda_sources=SOURCE)\nreturn x"), {"torch"}),
    "CUDA out of a file": (forward("return e.run(x)", "e = load('e', [str(HERE / 'run.cu'), 'run.cpp'])\n"), {"cuda"}),
    "C++ out of a file": (forward("return e.run(x)", "e = load('e', sources=['run.cpp'])\n"), {"cpp"}),
    "CUDA beside unknown options": (cxx("", arguments="cuda_sources=SOURCE, **options"), {"cuda"}),
    "C++ beside unknown options": (cxx("", arguments="**options"), {OTHER}),
    "sources that are unpacked": (forward("return e.f(x)", "e = load_inline('e', *a, b, functions=['f'])\n"), {OTHER}),
    "Triton by its module": (
        forward("kernel[(1,)](x)\nreturn x", "from triton.runtime.jit import jit\n" + KERNEL.replace("triton.", "")),
        {"triton"},
    ),
    "Gluon": (
        forward(
            "kernel[(1,)](x)\nreturn x",
            "from triton.experimental import gluon\n" + KERNEL.replace("triton", "gluon"),
        ),
        {"triton"},
    ),
    "unknown files": (forward("return e.run(x)", "e = load('e', files())\n"), {OTHER}),
    "both": (forward("kernel[(1,)](x)\nreturn e.run(x)", KERNEL + "e = load('e', ['run.cu'])\n"), {"cuda", "triton"}),
    "CUDA at run time": (forward("return torch.cuda._compile_kernel(S, 'k')(x)", "S = ''\n"), {"cuda"}),
    "library by ctypes": (forward("return ctypes.CDLL('k.so').k(x)", "import ctypes\n"), {OTHER}),
    "another package": (forward("return cupy.RawKernel(S, 'k')(x)", "import cupy\nS = ''\n"), {OTHER}),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_languages_of_a_candidate_are_those_of_the_kernels_that_it_uses(name: str) -> None:
    source, expected = LANGUAGES[name]
    module = Module(parse_quietly(source))
    assert {language for language, _, _ in kernel_languages(module, find_extensions(module))} == expected
    others = tuple(sorted({"cpp", "cuda", "torch", "triton"} - expected))
    found = breaks(source, Rules(languages=others)) if others else []
    assert {each.rule for each in found} == {"languages"}
    if OTHER not in expected:
        assert breaks(source, Rules(languages=tuple(sorted(expected)))) == []


LOWER = {
    "half": forward("return (x.half() @ w.half()).float()"),
    "bfloat16": forward("return x.to(torch.bfloat16).float()"),
    "autocast": forward("with torch.autocast('cuda'):\n    return x @ w"),
    "TF32": forward("torch.backends.cuda.matmul.allow_tf32 = True\nreturn x"),
    "fast mathematics": cxx("", arguments="functions=['run'], extra_cuda_cflags=['-O3', '--use_fast_math']"),
}
NOT_LOWER = {
    "comment": forward("# x.half()\nreturn x"),
    "name": forward("half = x * 0.5\nreturn half"),
    "double": forward("return x.double().float()"),
    "TF32 switched off": forward("torch.backends.cuda.matmul.allow_tf32 = False\nreturn x"),
    "ordinary flags": cxx("", arguments="functions=['run'], extra_cuda_cflags=['-O3']"),
}
STRICT = Rules(no_lower_precision=True)


@pytest.mark.parametrize("name", LOWER)
def test_a_lower_precision_breaks_its_rule(name: str) -> None:
    assert {each.rule for each in breaks(LOWER[name], STRICT)} == {"no_lower_precision"}


@pytest.mark.parametrize("name", NOT_LOWER)
def test_the_precision_of_the_problem_breaks_no_rule(name: str) -> None:
    assert breaks(NOT_LOWER[name], STRICT) == []


def test_half_precision_is_allowed_where_the_problem_has_it() -> None:
    assert breaks(LOWER["half"], STRICT, precision="float16") == []
    assert breaks(LOWER["fast mathematics"], STRICT, precision="float16") != []


# Honest cases that no rule can read, or that compute in a lower precision on purpose, with the reason.
UNREADABLE = {
    "honest_environment": "looks up a function of torch by a name out of the environment",
    "honest_generated_code": "generates its code and executes it",
}
OF_LOWER_PRECISION = {"honest_bfloat16_pieces": "adds up pieces in bfloat16 that are exact together"}
OF_OTHER_LANGUAGE = {
    "honest_ctypes_library": "loads a library that it compiles itself",
    "honest_relu_cuda_managed_memory": "calls the CUDA runtime by ctypes",
}


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_candidate_breaks_no_rule_that_it_keeps(case: Case) -> None:
    candidate, problem = case.candidate(), PROBLEMS[case.problem]
    assert not isinstance(candidate, InvalidSource)
    module = Module(parse_quietly(candidate.source))
    languages = {language for language, _, _ in kernel_languages(module, find_extensions(module))}
    assert (OTHER in languages) is (case.name in OF_OTHER_LANGUAGE)
    called = {
        name
        for each in find_breaks(
            candidate.source,
            Rules(forbidden_operators=EVERYTHING.forbidden_operators),
            least_precision=case.precision,
            reference=problem.source,
        )
        for name in OPERATORS
        if name in each.message.replace(",", "").split()
    }
    rules = Rules(tuple(sorted(languages - {OTHER})), tuple(sorted(OPERATORS - called)), no_lower_precision=True)
    found = find_breaks(
        candidate.source,
        rules,
        least_precision=problem.least_precision(case.precision),
        reference=problem.source,
    )
    hidden = [each for each in found if each.message.startswith("cannot be read")]
    lower = [each for each in found if each.rule == "no_lower_precision" and each not in hidden]
    assert bool(hidden) is (case.name in UNREADABLE), hidden
    assert bool(lower) is (case.name in OF_LOWER_PRECISION), lower


LONG = {
    **HOSTILE,
    "many calls in C++": cxx("x = at::mm(x, w); x.sum(); cublasSgemm(x);" * 6000),
    "much device code": cxx("using namespace at;\n" + "__device__ {" * 40_000 + "}" * 40_000),
    "many namespaces in C++": cxx("".join(f"namespace a{i} = at; a{i}::mm(x);" for i in range(12_000))),
    "many names in C++": cxx("using namespace at;\n" + "".join(f"{'_' * (i % 90)}mm{i}(x);" for i in range(20_000))),
    "many spellings": cxx("using namespace at;\n" + "".join(f"m{'_' * i}m(x);" for i in range(700))),
    "attributes in a circle": forward("self.a = self.b\nself.b = self.a\n" * 3000 + "return self.a.mm(x)"),
    "layers in layers": forward("self.a = nn.Sequential(self.a, [self.a, [self.a, self.a]])\n" * 1500 + "return x"),
    "functions of functions": forward(
        "return f1(x)", "".join(f"def f{i}(x):\n    return f{i + 1}(f{i + 2}(x))\n" for i in range(2500))
    ),
    "classes of classes": forward(
        "return x",
        "".join(f"class A{i + 1}(A{i}):\n    def go(self):\n        return self.a.go(self.b)\n" for i in range(1600)),
    ),
    "lambdas of lambdas": forward(
        "return g0()(x)", "".join(f"g{i} = lambda: g{i + 1}() or g{i + 2}()\n" for i in range(2500))
    ),
    "names of names": forward("".join(f"a{i + 1} = a{i} if x else a{i}\n" for i in range(4000)) + "return a9.mm(x)"),
}


@pytest.mark.parametrize("name", LONG)
def test_no_source_takes_long_to_check(name: str) -> None:
    begin = time.process_time()
    with contextlib.suppress(SyntaxError, ValueError):  # it is no candidate: nothing of it comes here
        breaks(LONG[name], EVERYTHING)
    assert time.process_time() - begin < 8


def test_names_that_lead_to_names_can_be_read() -> None:
    for name in ("functions of functions", "lambdas of lambdas", "names of names"):
        assert not any("cannot be read" in each.message for each in breaks(LONG[name])), name


def test_what_nobody_could_read_breaks_every_rule() -> None:
    source = forward("return x") + "a = 1\n" * 40_000
    assert {each.rule for each in breaks(source, EVERYTHING)} == {
        "forbidden_operators",
        "languages",
        "no_lower_precision",
    }


def test_a_reference_that_nobody_could_read_is_not_called_the_candidates_fault() -> None:
    reference = REFERENCE + "a = 1\n" * 40_000
    found = find_breaks(CALLS["inherited reference"], PRODUCTS, least_precision="float32", reference=reference)
    assert [(each.rule, "reference" in each.message) for each in found] == [("forbidden_operators", True)]
    assert find_breaks(CALLS["function"], PRODUCTS, least_precision="float32", reference=reference) == breaks(
        CALLS["function"]
    )


def test_a_candidate_of_the_corpus_that_inherits_the_reference_calls_all_that_it_calls() -> None:
    case = load_case("linear_inherits_model")
    found = breaks(case.source, Rules(forbidden_operators=("linear",)))
    assert [(each.line, each.message) for each in found] == [(4, "the forward that ModelNew inherits calls linear")]
