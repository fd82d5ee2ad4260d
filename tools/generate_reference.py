"""Writes ``docs/reference/`` from the code: commands, Python interface, errors, environment variables.

``make docs`` writes the pages; ``make lint`` runs this with ``--check`` and fails where a page is stale.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `make docs`; change the code instead. -->\n\n"
PACKAGES = ("kernel_spec", "kernels", "kernel_builder", "kernel_hub")
COMMANDS = ("kernels", "kernel-builder", "build2cmake", "kernel-hub")
WIDTH = "96"


def main() -> int:
    """Write or compare every page; exit 1 where a compared page is stale."""
    pages = {
        "commands.md": commands_page(),
        "python.md": python_page(),
        "errors.md": errors_page(),
        "environment.md": environment_page(),
    }
    stale = []
    for name, text in pages.items():
        path = TARGET / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            TARGET.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"docs/reference: not what the code says: {', '.join(stale)}; run: make docs")
        return 1
    return 0


def commands_page() -> str:
    """Show the help of every command and verb."""
    parts = [
        NOTE,
        "# Commands\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 told to end (SIGTERM).\n",
    ]
    for command in COMMANDS:
        parts.append(f"\n## {command}\n\n{help_block(command)}")
        parts += [
            f"\n### {command} {verb}\n\n{help_block(command, verb)}" for verb in verbs(command)
        ]
    return "".join(parts)


def help_block(command: str, *verb: str) -> str:
    """Run ``--help`` and quote it."""
    env = {**os.environ, "COLUMNS": WIDTH, "TERM": "dumb"}
    done = subprocess.run(
        [str(Path(sys.executable).parent / command), *verb, "--help"],
        capture_output=True, text=True, check=True, env=env,
    )  # fmt: skip
    return f"```text\n{done.stdout.strip()}\n```\n"


def verbs(command: str) -> list[str]:
    """Read the verbs off a command's help."""
    listing = help_block(command).partition("Commands:\n")[2]
    return [
        line.split()[0]
        for line in listing.splitlines()
        if line.startswith("  ") and not line.startswith("   ")
    ]


def python_page() -> str:
    """Show the signature and the docstring of every public name of ``kernels``."""
    kernels = importlib.import_module("kernels")
    parts = [
        NOTE,
        "# The Python interface\n\n",
        "Everything that `from kernels import …` offers.\n",
    ]
    for name in kernels.__all__:
        value = getattr(kernels, name)
        if isinstance(value, str):
            continue
        parts.append(f"\n## {name}\n\n")
        if inspect.isfunction(value):
            parts.append(f"```python\n{name}{format_signature(inspect.signature(value))}\n```\n\n")
        parts.append(f"```text\n{inspect.getdoc(value) or ''}\n```\n")
    return "".join(parts)


def format_signature(signature: inspect.Signature) -> str:
    """Write a signature, one parameter a line; annotations as the source spells them."""
    lines, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            lines.append("    *,")
        text = str(parameter).replace("'", "")
        lines.append(f"    {text},")
    returns = str(signature.return_annotation).strip("'")
    return "(\n" + "\n".join(lines) + f"\n) -> {returns}"


def modules() -> Iterator[ModuleType]:
    """Import every module of the packages but the ones that run when imported."""
    for package in PACKAGES:
        root = importlib.import_module(package)
        yield root
        for info in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not info.name.endswith("__main__") and ".templates" not in info.name:
                yield importlib.import_module(info.name)


def errors_page() -> str:
    """List every error class, by package: exit code, what else it is, what it means."""
    from kernel_spec.errors import KernelError

    classes = {
        value
        for module in modules()
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, KernelError)
        and value.__module__.split(".")[0] in PACKAGES
        and not value.__name__.startswith("_")
    }
    parts = [
        NOTE,
        "# Errors\n\nAll of them are `kernel_spec.errors.KernelError`. *Is also*: the standard kinds that "
        "callers may catch instead. *Exit*: of a command that ends with it.\n",
    ]
    for package in PACKAGES:
        own = sorted(
            (each for each in classes if each.__module__.split(".")[0] == package),
            key=lambda each: (each.__module__, each.__name__),
        )
        if not own:
            continue
        parts.append(f"\n## {package}\n\n| error | is also | exit | meaning |\n|---|---|---|---|\n")
        for each in own:
            kinds = ", ".join(
                base.__name__
                for base in each.__mro__
                if base.__module__ == "builtins" and base not in {object, Exception, BaseException}
            )
            meaning = (inspect.getdoc(each) or "").partition("\n\n")[0].replace("\n", " ")
            parts.append(
                f"| `{each.__name__}` | {kinds or 'nothing'} | {each.exit_code} | {meaning} |\n"
            )
    return "".join(parts)


def environment_page() -> str:
    """Show what the packages' settings say of the environment variables that they read."""
    parts = [NOTE, "# Environment variables\n\nEach package reads them in one module.\n"]
    for title, name in (("Loader", "kernels.settings"), ("Builder", "kernel_builder.settings")):
        module = importlib.import_module(name)
        text = (
            (inspect.getdoc(module) or "") + "\n\n" + (inspect.getdoc(module.read_settings) or "")
        )
        parts.append(f"\n## {title} (`{name}`)\n\n```text\n{text}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(main())
