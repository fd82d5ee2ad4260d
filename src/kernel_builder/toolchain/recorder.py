"""A library that stands before torch's stable interface for registering ops and writes down each call.

Which C++ function an op was given is known nowhere else: torch keeps a boxed function, and its
name is local to the kernel's library. The recorder says where in that library it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernel_builder.toolchain.cpu import CpuToolchain
from kernel_builder.toolchain.small_program import compile_once

# The functions and what they take: torch/csrc/inductor/aoti_torch/c/shim.h and
# torch/csrc/stable/c/shim.h. The program that loads it sets the recorder_real_... pointers to
# torch's own. Each registration becomes a line: namespace, key, op, offset in its library.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void Boxed(uint64_t *, uint64_t, uint64_t);

int32_t (*recorder_real_init)(const char *, const char *, const char *, uint32_t, void **);
int32_t (*recorder_real_impl)(void *, const char *, Boxed *);
int32_t (*recorder_real_versioned_impl)(void *, const char *, Boxed *, uint64_t);

static struct { void *library; char *space, *key; } blocks[4096];
static size_t block_count;
static char *text;
static size_t length, room;

const char *recorder_text(void) { return text == NULL ? "" : text; }

static void record(void *library, const char *name, Boxed *function) {
  size_t at = block_count;
  while (at > 0 && blocks[at - 1].library != library) --at;
  Dl_info place;
  if (dladdr((void *)function, &place) == 0) return;
  const char *space = at > 0 ? blocks[at - 1].space : "", *key = at > 0 ? blocks[at - 1].key : "";
  size_t more = strlen(space) + strlen(key) + strlen(name) + 32;
  if (length + more > room) {
    room = 2 * (length + more);
    text = realloc(text, room);
    if (text == NULL) abort();
  }
  size_t offset = (size_t)((char *)function - (char *)place.dli_fbase);
  length += snprintf(text + length, more, "%s\t%s\t%s\t%zx\n", space, key, name, offset);
}

int32_t aoti_torch_library_init_impl(
    const char *space, const char *key, const char *file, uint32_t line, void **library) {
  int32_t code = recorder_real_init(space, key, file, line, library);
  if (code == 0 && block_count < sizeof(blocks) / sizeof(blocks[0])) {
    blocks[block_count].library = *library;
    blocks[block_count].space = strdup(space);
    blocks[block_count++].key = strdup(key);
  }
  return code;
}

int32_t aoti_torch_library_impl(void *library, const char *name, Boxed *function) {
  record(library, name, function);
  return recorder_real_impl(library, name, function);
}

int32_t torch_library_impl(void *library, const char *name, Boxed *function, uint64_t version) {
  record(library, name, function);
  return recorder_real_versioned_impl(library, name, function, version);
}
"""


def make_recorder(toolchain: CpuToolchain, *, variables: Mapping[str, str], store: Path) -> Path:
    """Return the library; it is compiled once and stored.

    Args:
        toolchain: the compiler.
        variables: the environment of the compiler.
        store: the directory of all that is made once.

    Raises:
        CommandError: the compiler fails.
    """
    return compile_once(
        _SOURCE,
        "recorder.so",
        "-fPIC",
        "-shared",
        "-ldl",
        toolchain=toolchain,
        variables=variables,
        store=store,
    )
