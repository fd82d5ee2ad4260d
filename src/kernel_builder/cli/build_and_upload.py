"""``kernel-builder build-and-upload``: build, and publish if all of it was built."""

from __future__ import annotations

from typing import Any

import click

from kernel_builder.cli.build import build
from kernel_builder.cli.upload import upload

_BUILD = [param.name for param in build.params]
# The report of the build has --json; that of the upload has --output-json.
_UPLOAD = [param for param in upload.params if param.name not in {*_BUILD, "as_json"}]


def _run(**given: Any) -> None:
    context = click.get_current_context()
    building = {name: given[name] for name in _BUILD if name is not None}
    context.invoke(build, **building)
    wanted = {param.name: given[param.name] for param in _UPLOAD if param.name is not None}
    context.invoke(upload, directory=given["directory"], as_json=False, **wanted)


build_and_upload = click.Command(
    "build-and-upload",
    params=[*build.params, *_UPLOAD],
    callback=_run,
    help="Build every variant of DIR that can be built here, and publish them; nothing is published "
    "where one fails. The options are those of build and of upload.",
)
