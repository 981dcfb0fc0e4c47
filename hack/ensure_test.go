// SPDX-License-Identifier: Apache-2.0

// Package hack has a test of the scripts beside it.
package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Where nothing is installed, a script that needs Redis gets it: also for a user with sudo, as on
// the machines of GitHub.
//
// mutations: apt.sh that looks only whether the user is root, or that calls apt-get without sudo.
func TestWhatIsMissingIsInstalledAsRootOrBySudo(t *testing.T) {
	const allowed, refused = "exec \"${@:2}\"", "exit 1"
	for name, test := range map[string]struct {
		user, sudo string
		installs   bool
	}{
		"root":                            {"0", refused, true},
		"a user with sudo":                {"1000", "export by=sudo; " + allowed, true},
		"a user whose sudo asks, or none": {"1000", refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for _, program := range []string{"bash", "dirname", "env", "chmod", "true"} {
				path, err := exec.LookPath(program)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(bin, program)); err != nil {
					t.Fatal(err)
				}
			}
			redis := filepath.Join(bin, "redis-server")
			for fake, text := range map[string]string{
				"id":      "echo " + test.user,
				"sudo":    test.sudo,
				"apt-get": "if [[ " + test.user + " != 0 && ${by:-} != sudo ]]; then exit 100; fi\nif [[ $* == *redis-server* ]]; then echo >" + redis + "; chmod +x " + redis + "; fi",
			} {
				if err := os.WriteFile(filepath.Join(bin, fake), []byte("#!"+filepath.Join(bin, "bash")+"\n"+text+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), "ensure-redis.sh")
			cmd.Env = []string{"PATH=" + bin, "REQUIRE_REDIS=1"}
			out, err := cmd.CombinedOutput()
			if (err == nil) != test.installs {
				t.Errorf("%v: %s", err, out)
			}
			if !test.installs && !strings.Contains(string(out), "install Redis 6.2 or newer") {
				t.Errorf("said %s", out)
			}
		})
	}
}
