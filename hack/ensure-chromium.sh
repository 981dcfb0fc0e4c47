#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that Chromium is on the PATH, with a font. On a Debian system it installs the packages.
# Without one the tests of the console in a browser are skipped; with REQUIRE_CHROMIUM=1 this fails instead.
set -euo pipefail
# shellcheck source=hack/apt.sh
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

if found >/dev/null; then
  exit 0
fi
if can_install; then
  echo "chromium is missing; installing the package" >&2
  if install_packages chromium fonts-dejavu-core >&2 && found >/dev/null; then
    exit 0
  fi
fi
echo "chromium is missing; install it (Debian: apt-get install chromium fonts-dejavu-core)" >&2
if [[ ${REQUIRE_CHROMIUM:-} == 1 ]]; then
  exit 1
fi
echo "tests of the console in a browser will be skipped" >&2
