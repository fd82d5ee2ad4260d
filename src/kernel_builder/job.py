"""The job of building one variant: what it is made of, where it works, and who is told."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.planned import VariantBuild
from kernel_builder.progress import Reporter
from kernel_builder.settings import Settings
from kernel_builder.sources import SourceSet
from kernel_spec.provenance import Provenance

OUTPUT = "build"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One variant on its way.

    Attributes:
        project: the directory of the project.
        build: the variant.
        sources: the files of the project, as they were when it was planned.
        provenance: what it says of its origin.
        settings: what the environment and the command line say.
        jobs: how many compilers run at once; None: as many as CPUs and memory allow.
        force: whether it is built even where it is up to date.
        reporter: who is told how far it is.
    """

    project: Path
    build: VariantBuild
    sources: SourceSet
    provenance: Provenance
    settings: Settings
    jobs: int | None
    force: bool
    reporter: Reporter

    @property
    def name(self) -> str:
        """The name of the variant."""
        return str(self.build.variant)

    @property
    def target(self) -> Path:
        """Where it comes to lie."""
        return self.project / OUTPUT / self.name

    @property
    def work(self) -> Path:
        """Where its files and logs are kept while it is built."""
        return work_directory(self.project, self.settings) / self.name

    def tell_step(self, done: int, total: int, what: str) -> None:
        """Say that one of its steps is done."""
        self.reporter.step(self.name, done, total, what)

    def tell_fetched(self, what: str, done: int, total: int) -> None:
        """Say how far fetching one of its toolchains is, in bytes."""
        self.reporter.fetch(self.name, what, done, total)


def work_directory(project: Path, settings: Settings) -> Path:
    """Return where the builds of a project keep their files and logs, outside the project."""
    place = project.resolve()
    key = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    # For people only: a name with a line break would be none for Ninja, and one may be too long.
    name = re.sub(r"[^A-Za-z0-9._-]", "_", place.name)[:60]
    return settings.cache / "work" / f"{name}-{key}"
