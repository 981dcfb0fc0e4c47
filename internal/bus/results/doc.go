// Package results is the stream of results: it consumes, settles and reads them.
package results
