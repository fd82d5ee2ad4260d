"""Kernels that use torch: registered ops, and torch.compile through a kernel's own imports."""

from __future__ import annotations

import pytest

# In the layout of the published builder: _ops.py imports the library and names its namespace.
OP_KERNEL = {
    "__init__.py": "from ._ops import ops\nfrom . import layers\n\ndef scale(x):\n    from toy.cfg import FACTOR\n    return [len(x.shape), x * FACTOR]\n",
    "cfg.py": "FACTOR = 3\n",
    "layers.py": "import torch\nfrom toy import cfg\n\nclass Scale(torch.nn.Module):\n    def forward(self, x):\n        return x * cfg.FACTOR\n",
    "_ops.py": "import torch\n\nclass ops:\n    double = staticmethod(lambda x: 2 * x)\n",
}

CODE = """
import sys, torch, kernels
toy = kernels.get_kernel('acme/toy')
assert toy.layers.Scale.__module__ in sys.modules
x = torch.ones(3, 4)
compiled = torch.compile(toy.scale, fullgraph=True, backend='eager')
rank, y = compiled(x)
assert rank == 2 and torch.equal(y, 3 * x)
layer = torch.compile(toy.layers.Scale(), fullgraph=True, backend='eager')
assert torch.equal(layer(x), 3 * x)
print('ok')
"""


def test_compile_traces_through_a_kernel_that_imports_itself(machine, root, republish):
    pytest.importorskip("torch")
    republish(root, OP_KERNEL)
    assert machine.run(CODE) == "ok"
