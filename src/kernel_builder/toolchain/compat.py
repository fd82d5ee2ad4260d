"""Functions that headers of a newer glibc or libstdc++ call and an older system lacks, hidden in the kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from kernel_builder.process import run
from kernel_builder.toolchain.cpu import CpuToolchain
from kernel_builder.toolchain.stubs import store_directory

# Each function has a section of its own, so the linker keeps only those that are used. No header
# is included: headers are what redirects these names.
#
# - libstdc++ reads __libc_single_threaded to skip locks; 0 is always right.
# - stat and its kin have been functions since glibc 2.33; before, they were macros over __xstat.
# - Since glibc 2.38, C23's strtol is another function than C99's; they differ in "0b" alone.
# - The pthread functions with a clock came with 2.30. Waiting for the same span on the realtime
#   clock is what libstdc++ did before.
# - <iostream> of GCC 13 mentions ios_base_library_init to have the streams made. Those of the
#   shared libstdc++ are made by itself or by torch; the archive's would make them a second time.
_SOURCE = r"""
#define HIDDEN __attribute__((visibility("hidden")))
typedef __builtin_va_list args_t;
typedef struct { long seconds, nanoseconds; } span_t;

HIDDEN char __libc_single_threaded = 0;
HIDDEN void _ZSt21ios_base_library_initv(void) {}

extern int __xstat(int, const char *, void *), __lxstat(int, const char *, void *);
extern int __fxstat(int, int, void *), __fxstatat(int, int, const char *, void *, int);
HIDDEN int stat(const char *path, void *out) { return __xstat(STAT_VERSION, path, out); }
HIDDEN int stat64(const char *path, void *out) { return __xstat(STAT_VERSION, path, out); }
HIDDEN int lstat(const char *path, void *out) { return __lxstat(STAT_VERSION, path, out); }
HIDDEN int lstat64(const char *path, void *out) { return __lxstat(STAT_VERSION, path, out); }
HIDDEN int fstat(int file, void *out) { return __fxstat(STAT_VERSION, file, out); }
HIDDEN int fstat64(int file, void *out) { return __fxstat(STAT_VERSION, file, out); }
HIDDEN int fstatat(int dir, const char *path, void *out, int flags)
{ return __fxstatat(STAT_VERSION, dir, path, out, flags); }
HIDDEN int fstatat64(int dir, const char *path, void *out, int flags)
{ return __fxstatat(STAT_VERSION, dir, path, out, flags); }

extern long strtol(const char *, char **, int);
extern unsigned long strtoul(const char *, char **, int);
extern long long strtoll(const char *, char **, int);
extern unsigned long long strtoull(const char *, char **, int);
HIDDEN long __isoc23_strtol(const char *s, char **e, int b) { return strtol(s, e, b); }
HIDDEN unsigned long __isoc23_strtoul(const char *s, char **e, int b) { return strtoul(s, e, b); }
HIDDEN long long __isoc23_strtoll(const char *s, char **e, int b) { return strtoll(s, e, b); }
HIDDEN unsigned long long __isoc23_strtoull(const char *s, char **e, int b)
{ return strtoull(s, e, b); }
extern int __isoc99_vsscanf(const char *, const char *, args_t);
HIDDEN int __isoc23_vsscanf(const char *s, const char *f, args_t a)
{ return __isoc99_vsscanf(s, f, a); }
HIDDEN int __isoc23_sscanf(const char *s, const char *f, ...) {
  args_t args;
  __builtin_va_start(args, f);
  int found = __isoc99_vsscanf(s, f, args);
  __builtin_va_end(args);
  return found;
}

extern int clock_gettime(int, span_t *);
extern int pthread_cond_timedwait(void *, void *, const span_t *);
extern int pthread_mutex_timedlock(void *, const span_t *);
extern int pthread_rwlock_timedrdlock(void *, const span_t *);
extern int pthread_rwlock_timedwrlock(void *, const span_t *);
static span_t realtime(int clock, const span_t *until) {
  span_t now, real;
  clock_gettime(clock, &now);
  clock_gettime(0, &real);
  real.seconds += until->seconds - now.seconds;
  real.nanoseconds += until->nanoseconds - now.nanoseconds;
  if (real.nanoseconds < 0) { real.nanoseconds += 1000000000; --real.seconds; }
  if (real.nanoseconds >= 1000000000) { real.nanoseconds -= 1000000000; ++real.seconds; }
  return real;
}
HIDDEN int pthread_cond_clockwait(void *cond, void *mutex, int clock, const span_t *until)
{ span_t real = realtime(clock, until); return pthread_cond_timedwait(cond, mutex, &real); }
HIDDEN int pthread_mutex_clocklock(void *mutex, int clock, const span_t *until)
{ span_t real = realtime(clock, until); return pthread_mutex_timedlock(mutex, &real); }
HIDDEN int pthread_rwlock_clockrdlock(void *lock, int clock, const span_t *until)
{ span_t real = realtime(clock, until); return pthread_rwlock_timedrdlock(lock, &real); }
HIDDEN int pthread_rwlock_clockwrlock(void *lock, int clock, const span_t *until)
{ span_t real = realtime(clock, until); return pthread_rwlock_timedwrlock(lock, &real); }
"""
_STAT_VERSION = {"x86_64": 1, "aarch64": 0}


def make_compat(toolchain: CpuToolchain, *, variables: Mapping[str, str], store: Path) -> Path:
    """Return the object with these functions; it is made once and stored.

    Args:
        toolchain: the compiler.
        variables: the environment of the compiler.
        store: the directory of all stored stubs.

    Raises:
        CommandError: the compiler fails.
    """
    key = hashlib.sha256(f"{toolchain.identity}{_SOURCE}".encode()).hexdigest()

    def fill(directory: Path) -> None:
        source = directory / "compat.c"
        source.write_text(_SOURCE)
        version = f"-DSTAT_VERSION={_STAT_VERSION[toolchain.cpu]}"
        options = ["-x", "c", "-O2", "-fPIC", "-w", "-fno-builtin", "-ffunction-sections"]
        command = [*toolchain.command, *options, "-fdata-sections", version, "-c", source.name]
        run([*command, "-o", "compat.o"], cwd=directory, variables=variables)

    return store_directory(store / key[:32], fill) / "compat.o"
