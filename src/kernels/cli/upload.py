"""``kernels upload``: publishes built variants; the builder does it."""

from __future__ import annotations

import click

GROUP = "kernels.builder"


@click.command(
    name="upload",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> int:
    """Publish the variants in DIR/build on a hub: the same as `kernel-builder upload`."""
    found = find_upload()
    code = found.main(list(words), prog_name="kernels upload", standalone_mode=False)
    return code if isinstance(code, int) else 0


def find_upload() -> click.Command:
    """Return the builder's command.

    Raises:
        click.ClickException: the builder is not installed.
    """
    from importlib.metadata import entry_points

    try:
        [entry] = entry_points(group=GROUP, name="upload")
        found: click.Command = entry.load()
    except (ValueError, ModuleNotFoundError) as err:
        raise click.ClickException(
            "The builder publishes kernels, and it is not installed: pip install 'kernels[builder]'"
        ) from err
    return found
