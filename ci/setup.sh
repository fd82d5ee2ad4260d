#!/bin/sh
# Makes the virtual environment that every make target uses. Idempotent.
set -eu
python=$1
venv=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "make setup: $python is $("$python" -V 2>&1); Python 3.11 or newer is needed. Run: make setup PYTHON=python3.11" >&2
  exit 2
}
for tool in g++ make; do
  command -v "$tool" >/dev/null || {
    echo "make setup: $tool is missing; install it (Debian: apt-get install g++ make)" >&2
    exit 2
  }
done

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip install -qq --no-input -c ci/constraints.txt "$@"; }

echo "setup: torch 2.13.0 (CPU)"
pip 'torch==2.13.0'
echo "setup: the project with every extra"
pip -e '.[dev]'
echo "setup: ready in $venv"
