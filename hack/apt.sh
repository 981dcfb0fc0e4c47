# SPDX-License-Identifier: Apache-2.0
# For hack/ensure-*.sh, which source it: packages of a Debian system, installed as root or by a sudo that asks for no password.

as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

can_install() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }

install_packages() {
  as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"
}
