"""Every call form that the published client and ours accept gives the same result; so do the locks.

Time budget: 60 s, once the environment of the published client is there.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kernel_spec import publishing
from kernel_spec.backend import BackendKind
from kernel_spec.digest import digest_tree
from kernel_spec.directory import DirectoryHub
from kernel_spec.metadata import FILE_NAME, KernelDependency, Metadata, format_metadata
from kernel_spec.names import RepoId

# ``K`` is the package; ``commit``, ``project`` and ``lock`` are of the hub below.
FORMS = [
    "K.get_kernel('acme/toy', version=1)",
    "K.get_kernel('acme/toy', version=2)",
    "K.get_kernel('acme/toy', revision='v1')",
    "K.get_kernel('acme/toy', revision='v1.0.0')",
    "K.get_kernel('acme/toy', revision=commit)",
    "K.get_kernel('acme/toy', revision=commit[:8])",
    "K.get_kernel('acme/toy', version=1, backend='cpu')",
    "K.get_kernel('acme/toy', version=1, user_agent={'app': '1'})",
    "K.get_kernel('acme/toy', version=1, user_agent='app/1')",
    "K.get_kernel('acme/toy', version=1, check_arch=False)",
    "K.get_kernel('acme/toy', version=None, revision='v2')",
    "K.get_kernel('bob/toy', version=1, trust_remote_code=True)",
    "K.get_kernel('bob/toy', version=1, trust_remote_code=['bob/toy'])",
    "K.get_kernel('acme/top', version=1)",
    "K.get_kernel('acme/top', version=1).base",
    "K.get_local_kernel(project)",
    "K.get_local_kernel(project / 'build')",
    "K.get_local_kernel(project / 'build' / 'torch-cpu')",
    "K.get_local_kernel(project, backend='cpu')",
    "K.install_kernel('acme/toy', version=1)",
    "K.install_kernel('acme/toy', revision='v1')",
    "K.install_kernel('acme/toy', revision=commit, backend='cpu')",
    "K.has_kernel('acme/toy', version=1)",
    "K.has_kernel('acme/toy', revision='v2', backend='cpu')",
    "K.has_kernel('acme/cuda', version=1)",
    "K.get_kernel_variants('acme/toy', version=1)",
    "K.get_kernel_variants('acme/cuda', revision='v1')",
    "K.get_locked_kernel('acme/toy', lockfile=lock)",
    "K.get_locked_kernel('acme/toy', lockfile=lock, trust_remote_code=True)",
    "K.load_kernel('acme/toy', lockfile=lock)",
    "K.load_kernel('acme/toy', lockfile=lock, backend='cpu')",
    "sorted({k.module.WHAT for k in K.get_loaded_kernels()})",
    "[str(getattr(K.Metadata.read_from_file(FILE), name)) for name in ('name', 'id', 'version', 'license')]",
    "str(K.Metadata.from_bytes(FILE.read_bytes().replace(b'{', b'{\"kernels-minver\": \"0.14.0\",', 1)).kernels_minver)",
]
# Both refuse: ours with an error that callers of theirs catch.
REFUSED = [
    "K.get_kernel('acme/toy', version=9)",
    "K.get_kernel('acme/toy', version=1, revision='v1')",
    "K.get_kernel('acme/toy', version=1, backend='nonsense')",
    "K.get_kernel('acme/cuda', version=1)",
    "K.get_kernel('bob/toy', version=1)",
    "K.get_kernel('bob/toy', version=1, trust_remote_code=['acme/toy'])",
    "K.get_kernel('acme/einops', version=1)",
    "K.get_kernel('acme/future', version=1)",
    "K.get_kernel('acme/ring', version=1)",
    "K.install_kernel('acme/cuda', version=1)",
    "K.get_local_kernel(project / 'nothing')",
    "K.get_kernel_dep('acme/base')",
    "K.load_kernel('acme/other', lockfile=lock)",
    "K.get_locked_kernel('acme/other', lockfile=lock)",
    "K.Metadata.read_from_file(project / 'none')",
    "K.Metadata.from_bytes(b'{')",
    "K.Metadata.from_bytes(b'{}')",
]
# Theirs refuses, ours gives this: what docs/compatibility.md calls better on purpose.
BETTER = {
    "K.get_kernel('acme/toy')": "toy 2",
    "K.get_kernel('acme/toy', 'v1')": "toy 1",
    "K.get_kernel('acme/toy', version='>=1.0.0,<2')": "toy 1",
    "K.get_kernel('acme/toy', version='2.0.0')": "toy 2",
    "K.get_kernel('acme/old', version=1)": "toy 1",
    "K.get_local_kernel(str(project))": "local 7",
    "K.get_local_kernel(str(project), 'local')": "local 7",
    "K.has_kernel('acme/none', version=1)": False,
    "K.has_kernel('bob/toy', version=1)": True,
    "K.load_kernel('acme/toy', lock)": "toy 1",
    "K.get_locked_kernel('acme/toy', local_files_only=True, lockfile=str(lock))": "toy 1",
}
RUNNER = """
import pathlib, types, warnings
warnings.simplefilter('ignore')
import kernels as K
project, lock, commit = pathlib.Path({project!r}), pathlib.Path({lock!r}), {commit!r}
FILE = project / 'build' / 'torch-cpu' / 'metadata.json'
BUILTIN = (BaseException, Exception, object)

def shape(value):
    if isinstance(value, types.ModuleType):
        return value.WHAT
    if isinstance(value, pathlib.Path):
        return value.name
    if isinstance(value, list):
        return [shape(item) for item in value]
    if hasattr(value, 'variant'):
        rejected = isinstance(value, K.VariantRejected)
        return [value.variant.variant_str, rejected, bool(getattr(value, 'reason', ''))]
    return value

def outcome(text):
    try:
        return {{'value': shape(eval(text))}}
    except Exception as err:
        kinds = [c.__name__ for c in type(err).__mro__ if c.__module__ == 'builtins' and c not in BUILTIN]
        return {{'error': kinds, 'text': str(err)[:300]}}

result = {{text: outcome(text) for text in {forms!r}}}
"""


def write_kernel(build, name, value, *, variant="torch-cpu", **metadata):
    place = build / variant
    place.mkdir(parents=True)
    uses = metadata.pop("uses", None)
    source = f"WHAT = '{name} {value}'\n"
    if uses:
        source += f"from kernels import get_kernel_dep\nbase = get_kernel_dep({uses!r})\n"
    (place / "__init__.py").write_text(source)
    facts = {
        "name": name,
        "id": f"_{name}_{value}",
        "version": 1,
        "license": "Apache-2.0",
        "backend": BackendKind.CUDA if "cuda" in variant else BackendKind.CPU,
        "digest": digest_tree(place),
    }
    (place / FILE_NAME).write_bytes(format_metadata(Metadata(**facts | metadata)))


@pytest.fixture(scope="module")
def world(tmp_path_factory, serve):
    """A served hub whose owner acme is trusted, a project with a lock, and a local kernel."""
    tmp = tmp_path_factory.mktemp("world")
    hub = DirectoryHub(tmp / "hub")
    hub.root.mkdir()

    def put(repo_id, value, *, branch="v1", tags=(), files=None, **metadata):
        repo = RepoId(*repo_id.split("/"))
        project = tmp / "projects" / f"{repo.owner}-{repo.name}-{value}"
        if files is None:
            write_kernel(project / "build", repo.name, value, **metadata)
        else:
            project.mkdir(parents=True)
            for path, text in files.items():
                (project / path).write_text(text)
        paths = {p.relative_to(project).as_posix(): p for p in project.rglob("*") if p.is_file()}
        return publishing.publish(hub, repo, paths, branch=branch, parent=None, tags=tags)

    commit = put("acme/toy", 1, tags=("v1.0.0",))
    put("acme/toy", 2, branch="v2", tags=("v2.0.0",))
    put("bob/toy", 3)
    put("acme/base", 4)
    put("acme/cuda", 5, variant="torch-cuda")
    base = (KernelDependency(repo_id="acme/base", version=1),)
    put("acme/top", 6, kernel_depends=base, uses="acme/base")
    put("acme/einops", 8, python_depends=("einops",))
    put("acme/future", 9, minver=(99, 0, 0))
    put("acme/ring", 10, kernel_depends=(KernelDependency(repo_id="acme/ring", version=1),))
    status = 'kind = "redirect"\ndestination = "acme/toy"\n'
    put("acme/old", 11, branch="main", files={"kernel-status.toml": status})
    write_kernel(tmp / "local" / "build", "local", 7)
    app = tmp / "app"
    app.mkdir()
    text = '[tool.kernels.dependencies]\n"acme/toy" = 1\n"acme/top" = 1\n'
    (app / "pyproject.toml").write_text(text)
    return SimpleNamespace(
        tmp=tmp,
        hub=serve(hub.root, trusted=("acme",)),
        commit=commit,
        app=app,
        lock=app / "kernels.lock",
        local=tmp / "local",
    )


@pytest.fixture(scope="module")
def ours(world, machine_of):
    home = world.tmp / "our-home"
    home.mkdir()
    machine = machine_of(home, world.hub.url)

    def python(code):
        script = f"{code}\nimport json\nprint('\\nRESULT ' + json.dumps(result))\n"
        return json.loads(machine.run(script).rpartition("RESULT ")[2])

    def command(*words):
        return machine.run(f"import sys; from kernels.cli import main; main({list(words)!r})")

    return SimpleNamespace(python=python, command=command)


@pytest.fixture(scope="module")
def theirs(world, reference):
    home = world.tmp / "their-home"
    home.mkdir()
    return SimpleNamespace(
        python=lambda code: reference.python(world.hub, home, code),
        command=lambda *words: reference.run(world.hub, home, "kernels", *words),
    )


@pytest.fixture(scope="module")
def locked(world, ours):
    ours.command("lock", str(world.app), "--form", "new")
    return world.lock


def run_forms(client, world, forms):
    code = RUNNER.format(
        project=str(world.local), lock=str(world.lock), commit=world.commit, forms=list(forms)
    )
    return client.python(code)


def test_what_both_accept_gives_the_same(world, ours, theirs, locked):
    mine, other = (run_forms(client, world, FORMS) for client in (ours, theirs))
    assert {form: outcome for form, outcome in other.items() if "value" not in outcome} == {}
    assert mine == other


def test_what_both_refuse_ours_refuses_with_an_error_that_their_callers_catch(
    world, ours, theirs, locked
):
    mine, other = (run_forms(client, world, REFUSED) for client in (ours, theirs))
    for form in REFUSED:
        assert "error" in other[form], (form, other[form])
        assert "error" in mine[form], (form, mine[form])
        assert set(other[form]["error"]) <= set(mine[form]["error"]), (
            form,
            mine[form],
            other[form],
        )


def test_what_only_ours_accepts(world, ours, theirs, locked):
    ours.command("download", str(world.app))
    mine, other = (run_forms(client, world, BETTER) for client in (ours, theirs))
    assert {form: outcome.get("value", outcome) for form, outcome in mine.items()} == BETTER
    assert {form: outcome for form, outcome in other.items() if "error" not in outcome} == {}


def entries_of(path):
    from kernel_spec.lock import parse_lock

    return [(e.repo_id, e.version, e.commit) for e in parse_lock(path.read_bytes()).kernels]


def test_a_lock_of_either_is_read_by_both(world, ours, theirs, locked):
    mine = entries_of(world.lock)
    assert [entry[:2] for entry in mine] == [("acme/base", 1), ("acme/top", 1), ("acme/toy", 1)]
    theirs.command("download", str(world.app))
    world.lock.unlink()
    theirs.command("lock", str(world.app))
    assert entries_of(world.lock) == mine
    forms = [
        "K.get_locked_kernel('acme/toy', lockfile=lock)",
        "K.get_locked_kernel('acme/top', lockfile=lock).base",
    ]
    want = {forms[0]: {"value": "toy 1"}, forms[1]: {"value": "base 4"}}
    assert run_forms(ours, world, forms) == run_forms(theirs, world, forms) == want
    assert "acme/toy torch-cpu" in ours.command("download", str(world.app))
    assert "kept acme/toy" in ours.command("lock", str(world.app), "--form", "new")
