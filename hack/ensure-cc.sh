#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that Go can use cgo, without which there is no race detector. On a Debian system it installs a compiler.
set -euo pipefail
# shellcheck source=hack/apt.sh
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

compiler=$(go env CC)
if command -v "${compiler%% *}" >/dev/null; then
  exit 0
fi
if can_install; then
  echo "no C compiler; installing the package gcc" >&2
  if install_packages gcc libc6-dev >&2 && command -v gcc >/dev/null; then
    exit 0
  fi
fi
echo "the race detector needs a C compiler (Debian: apt-get install gcc libc6-dev)" >&2
exit 1
