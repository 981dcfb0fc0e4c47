// SPDX-License-Identifier: Apache-2.0

package deadletters

// Publish is for the tests of package deadletters_test: a redrive that dies in the middle.
var Publish = (*Store).publish
