// SPDX-License-Identifier: Apache-2.0

package access

import "github.com/syncopate-dev/syncopate/internal/addresses"

// How often the API server is asked whose token it is: of all addresses, and of one.
var (
	ofAll = addresses.Rate{PerSecond: 20, AtOnce: 100}
	ofOne = addresses.Rate{PerSecond: 5, AtOnce: 40}
)
