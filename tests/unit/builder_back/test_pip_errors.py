"""What is told of a pip that fails: its own words, and whether a toolchain cannot be had or is another one."""

from __future__ import annotations

import pytest

from kernel_builder.errors import CommandError, ToolchainError, ToolchainUnavailableError
from kernel_builder.process import Finished
from kernel_builder.toolchain.wheels import blame_pip, explain_pip


def fail(*lines: str) -> CommandError:
    finished = Finished(command=("pip",), code=1, output="\n".join(lines))
    return CommandError("pip failed\nwith exit code 1", finished=finished)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("WARNING: Retrying after ProxyError", "  ERROR: No match for x", "[notice] an update"),
            "ERROR: No match for x",
        ),
        (("ERROR: first", "ERROR: last", "hint: see above"), "ERROR: last"),
        (("Looking in links", "OSError: [Errno 28] No space left", ""), "OSError: [Errno 28]"),
        (("error: externally-managed-environment", "note: more"), "externally-managed"),
        (("Looking in links",), "with exit code 1"),
    ],
)
def test_the_last_error_that_pip_wrote_is_told(lines: tuple[str, ...], said: str) -> None:
    told = explain_pip(fail(*lines))
    assert said in told
    assert told == told.strip()


def test_a_wheel_of_another_hash_is_no_toolchain_that_cannot_be_had() -> None:
    """A backend whose toolchain cannot be had is passed over."""
    other = fail("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.")
    assert blame_pip(other) is ToolchainError
    assert blame_pip(fail("ERROR: No matching distribution")) is ToolchainUnavailableError
