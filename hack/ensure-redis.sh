#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that redis-server is on the PATH. On a Debian system it installs the package.
# Without one the tests that need it are skipped; with REQUIRE_REDIS=1 this fails instead.
set -euo pipefail
# shellcheck source=hack/apt.sh
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

if command -v redis-server >/dev/null; then
  exit 0
fi
if can_install; then
  echo "redis-server is missing; installing the package" >&2
  if install_packages redis-server >&2 && command -v redis-server >/dev/null; then
    exit 0
  fi
fi
echo "redis-server is missing; install Redis 6.2 or newer (Debian: apt-get install redis-server)" >&2
if [[ ${REQUIRE_REDIS:-} == 1 ]]; then
  exit 1
fi
echo "tests that need a real Redis will be skipped" >&2
