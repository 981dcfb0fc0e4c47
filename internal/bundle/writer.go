// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

const (
	// maxFile bounds each file, and maxAll their sum, before they are compressed.
	maxFile = 1 << 20
	maxAll  = 10 << 20
)

// Contents is the name of the file that says what is in the others.
const Contents = "contents.txt"

// Writer collects files and writes them at the end.
type Writer struct {
	files []file
	all   int
}

type file struct {
	name, about, note string
	data              []byte
}

// Add puts a value as JSON into the bundle. One that is too long is cut, and is no JSON any more.
func (w *Writer) Add(name, about string, value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		w.Miss(name, about, err)
		return
	}
	f := file{name: name, about: about, data: append(data, '\n')}
	if room := w.room(); len(f.data) > room {
		f.data, f.note = f.data[:room], fmt.Sprintf("cut: the first %d of %d bytes", room, len(f.data))
	}
	w.add(f)
}

// AddList puts a list as JSON into the bundle: as many of the first as there is room for.
func AddList[T any](w *Writer, name, about string, items []T) {
	const end = "\n]\n"
	f, sign := file{name: name, about: about, data: []byte("[")}, "\n  "
	for i := range items {
		one, err := json.MarshalIndent(items[i], "  ", "  ")
		if err != nil {
			w.Miss(name, about, err)
			return
		}
		if len(f.data)+len(sign)+len(one)+len(end) > w.room() {
			f.note = fmt.Sprintf("cut: the first %d of %d", i, len(items))
			break
		}
		f.data, sign = append(append(f.data, sign...), one...), ",\n  "
	}
	if f.data = append(f.data, end...); len(f.data) > w.room() {
		w.Miss(name, about, errors.New("there is no room left"))
		return
	}
	w.add(f)
}

// room is how many bytes one file more may have.
func (w *Writer) room() int { return min(maxFile, maxAll-w.all) }

func (w *Writer) add(f file) {
	w.all += len(f.data)
	w.files = append(w.files, f)
}

// Miss says that something could not be had.
func (w *Writer) Miss(name, about string, err error) {
	w.files = append(w.files, file{name: name, about: about, note: "missing: " + err.Error()})
}

// Table lists the files.
func (w *Writer) Table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(t, "FILE\tBYTES\tWHAT IT IS\n")
	for _, f := range w.files {
		fmt.Fprintf(t, "%s\t%d\t%s\n", f.name, len(f.data), f.about)
		if f.note != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", f.note)
		}
	}
	return t.Flush()
}

// Write writes the bundle: contents.txt first.
func (w *Writer) Write(out io.Writer, now time.Time) error {
	var contents bytes.Buffer
	if err := w.Table(&contents); err != nil {
		return fmt.Errorf("list the contents: %w", err)
	}
	z := gzip.NewWriter(out)
	t := tar.NewWriter(z)
	for _, f := range append([]file{{name: Contents, data: contents.Bytes()}}, w.files...) {
		if f.data == nil {
			continue
		}
		h := &tar.Header{Name: "support-bundle/" + f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: now, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if _, err := t.Write(f.data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return z.Close() //nolint:wrapcheck // the caller names the file
}
