// SPDX-License-Identifier: Apache-2.0

package document

// Deeper says whether a JSON text has more than n lists and objects in each other. It reads the
// text once, however deep it is.
func Deeper(text []byte, n int) bool {
	depth := 0
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = pastString(text, at+1)
		case '[', '{':
			if depth++; depth > n {
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
}

// pastString is where the quote stands that ends the string which begins at at.
func pastString(text []byte, at int) int {
	for ; at < len(text) && text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at
}
