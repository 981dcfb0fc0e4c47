// SPDX-License-Identifier: Apache-2.0

package itemset

import "errors"

// ErrText says that a text is not that of a set. The error that wraps it says where and why; a
// retry does not help.
var ErrText = errors.New("not a set of items")
