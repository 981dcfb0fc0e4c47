#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Draws docs/diagrams/*.d2 as SVG beside them: light, and dark where the reader's screen is. Each picture ends with the
# checksum of its text, by which a test sees that it is drawn anew.
set -euo pipefail
cd "$(dirname "$0")/.."

for text in docs/diagrams/*.d2; do
  picture=${text%.d2}.svg
  go tool -modfile=hack/tools/diagrams/go.mod d2 --theme 0 --dark-theme 200 --layout elk --pad 20 "$text" "$picture"
  printf '<!-- drawn from sha256:%s -->\n' "$(sha256sum "$text" | cut -d' ' -f1)" >>"$picture"
  chmod 644 "$picture"
done
