// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Operator is the operator as a program: the one that OPERATOR_BINARY names, as hack/test.sh links
// it once for all packages, else one that is built in dir.
func Operator(ctx context.Context, dir string) (string, error) {
	if binary := os.Getenv("OPERATOR_BINARY"); binary != "" {
		return binary, nil
	}
	binary := filepath.Join(dir, "manager")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/manager")
	build.Dir = Root()
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the operator: %w\n%s", err, out)
	}
	return binary, nil
}
