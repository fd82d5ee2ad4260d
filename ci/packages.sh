#!/bin/sh
# Installs the Debian packages of packages.txt where they are missing and may be installed.
set -eu
cd "$(dirname "$0")"
command -v dpkg-query >/dev/null || exit 0
missing=
for package in $(grep -v '^#' packages.txt); do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "integration: not installed:$missing (their tests are skipped; apt-get install$missing)" >&2
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
