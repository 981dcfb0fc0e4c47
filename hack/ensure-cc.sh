#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that Go can use cgo, without which there is no race detector. As root on a Debian system it installs a compiler.
set -euo pipefail

compiler=$(go env CC)
if command -v "${compiler%% *}" >/dev/null; then
  exit 0
fi
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "no C compiler; installing the package gcc" >&2
  export DEBIAN_FRONTEND=noninteractive
  if apt-get update -qq >&2 && apt-get install -qq -y --no-install-recommends gcc libc6-dev >&2 && command -v gcc >/dev/null; then
    exit 0
  fi
fi
echo "the race detector needs a C compiler (Debian: apt-get install gcc libc6-dev)" >&2
exit 1
