// Package deadletters is the stream of results that were put aside: it writes, lists and redrives them.
package deadletters
