"""The commands ``kernel-builder`` and ``build2cmake``: each verb is a module, loaded when it is called."""

from __future__ import annotations

from kernel_builder.cli.frame import LazyGroup, run

VERBS = {
    "init": "kernel_builder.cli.init:init",
    "plan": "kernel_builder.cli.plan:plan",
    "list-variants": "kernel_builder.cli.list_variants:list_variants",
    "check-config": "kernel_builder.cli.check_config:check_config",
    "update-build": "kernel_builder.cli.update_build:update_build",
    "build": "kernel_builder.cli.build:build",
    "build-and-copy": "kernel_builder.cli.build:build",
    "fetch": "kernel_builder.cli.fetch:fetch",
    "lock": "kernel_builder.cli.lock:lock",
    "update": "kernel_builder.cli.lock:update",
    "rebuild": "kernel_builder.cli.rebuild:rebuild",
    "check": "kernel_builder.cli.check:check",
    "check-abi": "kernel_builder.cli.check_abi:check_abi",
    "check-builds": "kernel_builder.cli.check_builds:check_builds",
    "lint-abi": "kernel_builder.cli.lint_abi:lint_abi",
    "hash": "kernel_builder.cli.hash:hash_variants",
    "create-pyproject": "kernel_builder.cli.export:create_pyproject",
    "clean-pyproject": "kernel_builder.cli.export:clean_pyproject",
    "devshell": "kernel_builder.cli.shell:devshell",
    "testshell": "kernel_builder.cli.shell:testshell",
    "upload": "kernel_builder.cli.upload:upload",
    "build-and-upload": "kernel_builder.cli.build_and_upload:build_and_upload",
    "fill-card": "kernel_builder.cli.fill_card:fill_card",
    "completions": "kernel_builder.cli.completions:completions",
}

BUILD2CMAKE = {
    "validate": "kernel_builder.cli.check_config:validate",
    "update-build": "kernel_builder.cli.update_build:update_build",
    "generate-torch": "kernel_builder.cli.export:generate_torch",
    "clean": "kernel_builder.cli.export:clean",
}


def main() -> None:
    """Run ``kernel-builder``; does not return."""
    run(
        LazyGroup(
            "kernel-builder",
            verbs=VERBS,
            help="Write compute kernels, build them for many environments, publish them.",
        )
    )


def build2cmake() -> None:
    """Run ``build2cmake``, the older name of the tools around ``build.toml``; does not return."""
    run(
        LazyGroup(
            "build2cmake",
            verbs=BUILD2CMAKE,
            help="Tools around build.toml. kernel-builder has the rest.",
        )
    )
