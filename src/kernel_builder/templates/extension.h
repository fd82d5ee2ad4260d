// What a kernel's sources get for <torch/extension.h>: its C++ part, and Python.h. The other part of
// torch's own header, pybind11, needs more than Python's stable ABI, and a kernel registers its ops
// with TORCH_LIBRARY_EXPAND instead.
#pragma once

#include <Python.h>
#include <torch/all.h>
