"""Every model of transformers that marks layers or functions can be imported, and stays as it is."""

import importlib
import json
from pathlib import Path

import transformers
from torch import nn

from kernels.layer.extensible import NAME

root = Path(transformers.__file__).parent
marked, layers, functions = [], 0, 0
for file in sorted(root.glob("models/*/modeling_*.py")):
    text = file.read_text(encoding="utf-8")
    if "use_kernel" not in text:
        continue
    module = importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")
    marked.append(file.parent.name)
    for value in vars(module).values():
        is_layer = isinstance(value, type) and issubclass(value, nn.Module)
        layers += is_layer and NAME in vars(value)
        functions += isinstance(value, nn.Module) and hasattr(value, NAME)
print(json.dumps({"models": len(marked), "layers": layers, "functions": functions}))
