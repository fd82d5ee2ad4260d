"""``kernel-builder completions``: what makes a shell complete commands and options."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")
_PLACES = """\
bash: kernel-builder completions bash > ~/.local/share/bash-completion/completions/kernel-builder
zsh:  kernel-builder completions zsh > <a directory of $fpath>/_kernel-builder
fish: kernel-builder completions fish > ~/.config/fish/completions/kernel-builder.fish"""


@click.command("completions", epilog=f"\b\n{_PLACES}")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completions(ctx: click.Context, shell: str) -> None:
    """Write what makes SHELL complete this program's commands and options."""
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    program = root.info_name or "kernel-builder"
    found = get_completion_class(shell)
    assert found is not None
    variable = f"_{program.replace('-', '_')}_COMPLETE".upper()
    made = found(root.command, {}, program, variable)
    # Not made.source(): for bash that starts a bash, to see how old it is.
    click.echo(made.source_template % made.source_vars())
