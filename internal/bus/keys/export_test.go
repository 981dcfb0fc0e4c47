// SPDX-License-Identifier: Apache-2.0

package keys

// ReadPause is for the tests of package keys_test.
const ReadPause = keyReadPause

// ReadSince is for the tests of package keys_test.
var ReadSince = (*Live).readSince
